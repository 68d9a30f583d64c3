"""A disk that fills up at every point of saving: what was saved before is there whole, and every rank is told."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import torch
from torch import nn

from accelify.runtime import ProjectConfiguration, gather_object, load_weights
from tests.distributed.processes import fresh_accelerator, run_ranks

pytestmark = pytest.mark.distributed

LIMIT = 120
STEP = 48 * 1024


@pytest.fixture
def disk(tmp_path):
    """A small disk of its own, which only root can mount."""
    place = tmp_path / "disk"
    place.mkdir()
    if shutil.which("mount") is None:
        pytest.skip("there is no mount here")
    command = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(place)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"no disk of its own can be mounted here: {done.stderr.strip()}")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


class Filled:
    """Leaves so many bytes of a disk free."""

    def __init__(self, disk):
        self.filler = Path(disk) / "filler"

    def leave(self, free):
        self.filler.unlink(missing_ok=True)
        state = os.statvfs(self.filler.parent)
        with open(self.filler, "wb") as file:
            os.posix_fallocate(file.fileno(), 0, max(1, state.f_bavail * state.f_frsize - free))


def _fill_up(accelerator, disk, attempt, check):
    """Attempt with more and more space until it succeeds; what each failure was told."""
    filled = Filled(disk)
    told = []
    for free in range(0, 4 * 2**20, STEP):
        if accelerator.is_main_process:
            filled.leave(free)
        accelerator.wait_for_everyone()
        try:
            attempt()
        except (OSError, RuntimeError) as error:
            told.append(str(error))
            check()
            accelerator.wait_for_everyone()
        else:
            return told
    raise AssertionError("it never succeeded")


def _names(directory):
    return sorted(p.name for p in Path(directory).iterdir())


def _prepared(**kwargs):
    accelerator = fresh_accelerator(**kwargs)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(200, 200), nn.Linear(200, 200))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    return accelerator, *accelerator.prepare(model, optimizer)


def _step(accelerator, model, optimizer):
    optimizer.zero_grad()
    accelerator.backward(model(torch.ones(3, 200)).square().mean())
    optimizer.step()
    return [p.detach().clone() for p in model.parameters()]


def _save_states(disk):
    config = ProjectConfiguration(disk, automatic_checkpoint_naming=True, total_limit=1)
    accelerator, model, optimizer = _prepared(project_config=config)
    first = _step(accelerator, model, optimizer)
    accelerator.save_state()
    second = _step(accelerator, model, optimizer)
    directory = Path(disk) / "checkpoints"

    def check():
        assert _names(directory) == ["checkpoint_0"]
        accelerator.load_state()
        assert all(map(torch.equal, model.parameters(), first))
        for p, value in zip(model.parameters(), second, strict=True):
            p.data.copy_(value)

    told = _fill_up(accelerator, disk, accelerator.save_state, check)
    assert _names(directory) == ["checkpoint_1"]
    accelerator.load_state()
    assert all(map(torch.equal, model.parameters(), second))
    return told


def test_checkpoints(disk):
    told, others = run_ranks(2, _save_states, str(disk), timeout=LIMIT)
    assert told == others
    assert len(told) > 10
    for sentence in told:
        assert re.fullmatch(
            r"the checkpoint \S+/checkpoint_1 could not be written: .*No space left on device.* \(rank 0\); "
            "earlier checkpoints are as they were",
            sentence,
        )


def _replace_one_place(disk):
    accelerator, model, optimizer = _prepared()
    first = _step(accelerator, model, optimizer)
    target = Path(disk) / "c"
    accelerator.save_state(target)
    _step(accelerator, model, optimizer)

    def check():
        assert _names(disk) == ["c", "filler"]
        accelerator.load_state(target)
        assert all(map(torch.equal, model.parameters(), first))

    return len(_fill_up(accelerator, disk, lambda: accelerator.save_state(target), check))


def test_one_place_written_again(disk):
    assert min(run_ranks(2, _replace_one_place, str(disk), timeout=LIMIT)) > 10


def _save_files(disk, safe):
    """The main process writes; the others have nothing to do and nothing to be told."""
    accelerator, model, optimizer = _prepared()
    path, directory = Path(disk) / "x", Path(disk) / "weights"
    own = accelerator.unwrap_model(model)
    first = _step(accelerator, model, optimizer)
    accelerator.save(own.state_dict(), path, safe_serialization=safe)
    accelerator.save_model(model, directory, max_shard_size="100KB", safe_serialization=safe)
    accelerator.wait_for_everyone()
    names = _names(directory)
    again = nn.Sequential(nn.Linear(200, 200), nn.Linear(200, 200))
    second = _step(accelerator, model, optimizer)

    def check():
        assert _names(disk) == ["filler", "weights", "x"]
        assert _names(directory) == names
        load_weights(again, directory)
        assert all(map(torch.equal, again.parameters(), first))

    def shared(write):
        """The others learn of the main process's failure, so that all go round together."""

        def attempt():
            cause = None
            try:
                write()
            except OSError as error:
                cause = str(error)
            [cause] = gather_object([cause])[:1]
            if cause is not None:
                raise OSError(cause)

        return attempt

    told = _fill_up(
        accelerator,
        disk,
        shared(lambda: accelerator.save(own.state_dict(), path, safe_serialization=safe)),
        check,
    )
    assert all(re.search(f"No space left on device: '{path}'", sentence) for sentence in told)
    write = shared(lambda: accelerator.save_model(model, directory, "100KB", safe))
    more = _fill_up(accelerator, disk, write, check)
    accelerator.wait_for_everyone()
    assert all(re.search(f"No space left on device: '{directory}/", sentence) for sentence in more)
    load_weights(again, directory)
    assert all(map(torch.equal, again.parameters(), second))
    return min(len(told), len(more))


@pytest.mark.parametrize("safe", [True, False])
def test_files_and_weights(disk, safe):
    assert min(run_ranks(2, _save_files, str(disk), safe, timeout=LIMIT)) > 3
