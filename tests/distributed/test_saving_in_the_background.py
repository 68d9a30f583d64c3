"""Checkpoints that are written while training goes on: what they hold is that of the call, and they are whole."""

import os
import signal
import threading

import pytest
import torch
from torch import nn

from accelify.runtime import FullyShardedDataParallelPlugin, checkpoint_folders, files
from accelify.runtime.backends import fsdp
from tests.distributed.processes import complete_checkpoints_late, fresh_accelerator, run_ranks, try_ranks

pytestmark = pytest.mark.distributed


def _prepared(kind=None, size=8):
    torch.manual_seed(0)
    plugin = (
        FullyShardedDataParallelPlugin(state_dict_type=None if kind == "AUTO" else kind) if kind else None
    )
    accelerator = fresh_accelerator(fsdp_plugin=plugin)
    model = nn.Sequential(nn.Linear(size, size), nn.Linear(size, size))
    model[1].weight = model[0].weight  # tied
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    return accelerator, *accelerator.prepare(model, optimizer)


def _step(accelerator, model, optimizer):
    accelerator.backward(model(torch.ones(2, 8)).square().sum())
    optimizer.step()
    optimizer.zero_grad()


def _weights(accelerator, model):
    return {k: v.tolist() for k, v in accelerator.get_state_dict(model).items()}


def _delayed(release):
    """Let the checkpoint be written only when the training has gone on."""
    real = checkpoint_folders.complete

    def complete(*args):
        release.wait(60)
        real(*args)

    checkpoint_folders.complete = complete


def _save(kind, directory):
    accelerator, model, optimizer = _prepared(kind)
    _step(accelerator, model, optimizer)
    then = _weights(accelerator, model)
    release = threading.Event()
    _delayed(release)
    accelerator.save_state(f"{directory}/c", asynchronous=True)
    assert not os.path.exists(f"{directory}/c")
    for _ in range(3):
        _step(accelerator, model, optimizer)
    release.set()
    accelerator.wait_for_saving()
    assert os.path.exists(f"{directory}/c/accelify-checkpoint.json")
    assert _weights(accelerator, model) != then
    return then, sorted(os.listdir(f"{directory}/c")), _weights(accelerator, model)


def _load(kind, directory):
    accelerator, model, optimizer = _prepared(kind)
    accelerator.load_state(f"{directory}/c")
    loaded = _weights(accelerator, model)
    for _ in range(3):
        _step(accelerator, model, optimizer)
    return loaded, _weights(accelerator, model)


@pytest.mark.parametrize("kind", [None, "FULL_STATE_DICT", "SHARDED_STATE_DICT"])
def test_it_holds_what_there_was_at_the_call(kind, tmp_path):
    then, names, after = run_ranks(2, _save, kind, str(tmp_path))[0]
    assert (
        (".metadata" in os.listdir(tmp_path / "c" / "pytorch_model_fsdp_0"))
        if kind == "SHARDED_STATE_DICT"
        else True
    )
    assert ("model.safetensors" in names) is (kind != "SHARDED_STATE_DICT")
    for loaded, gone_on in run_ranks(2, _load, kind, str(tmp_path)):
        assert loaded == then
        assert gone_on == after
    assert [p.name for p in tmp_path.iterdir()] == ["c"]


def test_one_process(tmp_path):
    then, _, after = run_ranks(1, _save, None, str(tmp_path))[0]
    assert run_ranks(1, _load, None, str(tmp_path))[0] == (then, after)


def _killed(directory):
    accelerator, model, optimizer = _prepared()
    accelerator.save_state(f"{directory}/c", asynchronous=True)
    accelerator.wait_for_saving()
    first = _weights(accelerator, model)
    _step(accelerator, model, optimizer)
    checkpoint_folders.complete = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
    accelerator.save_state(f"{directory}/c", asynchronous=True)
    accelerator.wait_for_saving()
    return first


def test_killed_in_the_background(tmp_path):
    outcomes = try_ranks(2, _killed, str(tmp_path))
    assert outcomes[0].exit_code == -signal.SIGKILL
    assert "rank 0 is gone" in outcomes[1].error
    run_ranks(2, _load, None, str(tmp_path))


def _full(directory, kind):
    accelerator, model, optimizer = _prepared(kind)
    accelerator.save_state(f"{directory}/c", asynchronous=True)
    accelerator.wait_for_saving()

    def full(*_):
        raise OSError(28, "No space left on device")

    files.save_pickled = full
    accelerator.save_state(f"{directory}/c", asynchronous=True)
    _step(accelerator, model, optimizer)
    with pytest.raises(
        RuntimeError, match=r"could not be written: .*No space left on device \(rank 0\); earlier"
    ):
        accelerator.wait_for_saving()
    # Nobody is out of step, and nothing is left to wait for.
    accelerator.wait_for_saving()
    return accelerator.reduce(1)


@pytest.mark.parametrize("kind", [None, "SHARDED_STATE_DICT"])
def test_a_full_disk_in_the_background(kind, tmp_path):
    assert run_ranks(2, _full, str(tmp_path), kind) == [2, 2]
    assert [p.name for p in tmp_path.iterdir()] == ["c"]
    run_ranks(2, _load, kind, str(tmp_path))


def _not_waited_for(directory):
    accelerator, model, optimizer = _prepared()
    complete_checkpoints_late(3)
    accelerator.save_state(f"{directory}/c", asynchronous=True)
    _step(accelerator, model, optimizer)
    # As a script's end does.
    threading._shutdown()


def test_the_end_of_a_process_waits(tmp_path):
    run_ranks(2, _not_waited_for, str(tmp_path))
    run_ranks(2, _load, None, str(tmp_path))


def _peak(directory, kind):
    """Bytes of tensors that a rank holds at once for a whole checkpoint, above what it held before."""
    accelerator, model, optimizer = _prepared(kind, size=8)
    _step(accelerator, model, optimizer)
    held = []
    engine = accelerator.backend
    found = [engine.saved_weights(m) for m in accelerator._models]
    found += [engine.saved_optimizer(o.optimizer)["state"] for o in accelerator._optimizers]

    def count(item):
        if isinstance(item, torch.Tensor):
            held.append(item.numel())
        elif isinstance(item, dict):
            for value in item.values():
                count(value)

    for item in found:
        count(item)
    return max(held, default=0)


def test_whole_states_are_on_the_main_process_alone(tmp_path):
    first, second = run_ranks(2, _peak, str(tmp_path), "FULL_STATE_DICT")
    assert first == 64
    # An optimizer's number of steps.
    assert second <= 1


def _by_size(directory, limit):
    fsdp.SHARDED_FROM = limit
    accelerator, model, optimizer = _prepared("AUTO")
    _step(accelerator, model, optimizer)
    accelerator.save_state(f"{directory}/c")
    return _weights(accelerator, model)


@pytest.mark.parametrize(("limit", "sharded"), [(100, True), (100_000, False)])
def test_parts_are_the_default_above_a_size(limit, sharded, tmp_path):
    saved = run_ranks(2, _by_size, str(tmp_path), limit)[0]
    assert (tmp_path / "c" / "pytorch_model_fsdp_0").is_dir() is sharded
    # Whichever it is, it loads.
    assert run_ranks(2, _load, "AUTO", str(tmp_path))[0][0] == saved
