"""Processes that are killed at every point: the others end with a sentence, and what was saved is there."""

import os
import signal
import threading
import time

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from accelify.runtime import checkpoint_folders, resuming
from tests.distributed.processes import fresh_accelerator, run_ranks, try_ranks

pytestmark = pytest.mark.distributed


RENAME = os.replace


def _die(*_):
    os.kill(os.getpid(), signal.SIGKILL)


def _die_at_the_old_one(path, **_):
    if str(path).endswith(".old"):
        _die()


def _prepared():
    accelerator = fresh_accelerator()
    return accelerator, accelerator.prepare(nn.Linear(2, 1, bias=False))


def _weight(accelerator, model):
    return accelerator.unwrap_model(model).weight


def _save_twice(place, dies_at):
    """The main process is killed where the second checkpoint takes the place of the first."""
    accelerator, model = _prepared()
    for value in (1.0, 2.0):
        nn.init.constant_(_weight(accelerator, model), value)
        if value == 2.0 and accelerator.is_main_process:
            count = 0

            def counted(*paths):
                nonlocal count
                count += str(paths[1]).startswith(place.rpartition("/")[0])
                if count > dies_at:
                    _die()
                RENAME(*paths)

            checkpoint_folders.os.replace = counted
            if dies_at == 9:
                checkpoint_folders.shutil.rmtree = _die_at_the_old_one
        accelerator.save_state(place)


def _load(place):
    accelerator, model = _prepared()
    accelerator.load_state(place)
    return _weight(accelerator, model).unique().tolist()


# Renames: the weights, the marker, the old one aside, the new one in its place; then the old one is deleted.
@pytest.mark.parametrize("dies_at", [0, 1, 2, 3, 9])
def test_while_a_checkpoint_takes_the_place_of_another(dies_at, tmp_path):
    place = str(tmp_path / "c")
    main, other = try_ranks(2, _save_twice, place, dies_at)
    assert main.exit_code == -signal.SIGKILL
    assert "rank 0 is gone" in other.error
    assert run_ranks(2, _load, place) == [[2.0 if dies_at == 9 else 1.0]] * 2


def _killed_while_loading(place):
    if os.environ["RANK"] == "1":
        resuming.restore_random_state = _die
    return _load(place)


def test_while_loading(tmp_path):
    place = str(tmp_path / "c")
    run_ranks(2, _save_twice, place, 99)
    other, dead = try_ranks(2, _killed_while_loading, place)
    assert dead.exit_code == -signal.SIGKILL
    assert "rank 1 is gone" in other.error
    assert run_ranks(2, _load, place) == [[2.0]] * 2


class _Deadly(Dataset):
    """One of its samples ends the worker that reads it, as the kernel does where memory runs out."""

    def __len__(self):
        return 24

    def __getitem__(self, index):
        if index == 17:
            _die()
        return [1.0, float(index)]


def _with_workers():
    accelerator, model = _prepared()
    # Numbers, no tensors: a tensor's memory is asked of the worker that made it when the batch is read, and that may be
    # dead by then, which is another error than the one that is looked for.
    loader = accelerator.prepare(
        DataLoader(_Deadly(), batch_size=2, num_workers=1, collate_fn=list, multiprocessing_context="fork")
    )
    for x in loader:
        accelerator.backward(model(torch.tensor(x)).mean())
    return accelerator.reduce(1)


def test_a_worker_of_one_rank():
    # Batch 8 is that of rank 0.
    first, second = try_ranks(2, _with_workers)
    assert "DataLoader worker" in first.error
    assert "rank 0 raised RuntimeError: DataLoader worker" in second.error


def _interrupted():
    def stop(*_):
        raise RuntimeError("the disk is full")

    accelerator = fresh_accelerator()
    accelerator.wait_for_everyone()
    # The handler runs when the wait of a second ends or the other has come, which is to be in the same second.
    if os.environ["RANK"] == "1":
        time.sleep(0.6)
    else:
        signal.signal(signal.SIGUSR2, stop)
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGUSR2)).start()
    return [accelerator.gather(torch.ones(1)).tolist() for _ in range(2)]


def test_a_signal_while_a_rank_waits():
    first, second = try_ranks(2, _interrupted)
    assert "RanksDisagreeError" not in first.error
    assert "rank 0 raised RuntimeError: the disk is full" in second.error
