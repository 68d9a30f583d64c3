"""Resuming on another number of ranks, with loaders that come later, and in the directory of another run."""

import re

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from accelify.runtime import DataLoaderConfiguration, ProjectConfiguration
from tests.distributed.processes import fresh_accelerator, run_ranks
from tests.runtime.training import make_data

pytestmark = pytest.mark.distributed

EPOCHS = 3


class _Progress:
    epoch = 0

    def state_dict(self):
        return {"epoch": self.epoch}

    def load_state_dict(self, state):
        self.epoch = state["epoch"]


def _run(directory, stop_at=None, load=False, split=True, steps=1, stop=True):
    """Mean losses over all ranks, and the samples seen, from the start or from a checkpoint."""
    torch.manual_seed(8 if not load else 99)
    accelerator = fresh_accelerator(
        dataloader_config=DataLoaderConfiguration(split_batches=split), gradient_accumulation_steps=steps
    )
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    data = make_data(24)
    numbered = TensorDataset(*data.tensors, torch.arange(24)) if hasattr(data, "tensors") else data
    loader = DataLoader(numbered, batch_size=4, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    progress = _Progress()
    accelerator.register_for_checkpointing(progress)
    if load:
        accelerator.load_state(directory)
    losses, seen, step = [], [], 0
    for epoch in range(progress.epoch, EPOCHS):
        progress.epoch = epoch
        for x, y, *number in loader:
            with accelerator.accumulate(model):
                each = nn.functional.mse_loss(model(x.float()), y, reduction="none").mean(1)
                accelerator.backward(each.mean())
                optimizer.step()
                optimizer.zero_grad()
            losses.append(accelerator.gather_for_metrics(each.detach()).mean().item())
            seen.append(accelerator.gather_for_metrics(number[0]).tolist() if number else [])
            step += 1
            if step == stop_at:
                accelerator.save_state(directory)
                if stop:
                    return losses, seen
    return losses, seen


# 6 batches an epoch: in the first epoch, in the second, at the end of one, and within a window of 4.
@pytest.mark.parametrize(("stop_at", "steps"), [(2, 1), (8, 1), (6, 1), (9, 4)])
@pytest.mark.parametrize(("before", "after"), [(2, 3), (3, 1), (1, 2)])
def test_the_losses_of_a_run_that_was_never_stopped(before, after, stop_at, steps, tmp_path):
    whole, order = run_ranks(before, _run, str(tmp_path / "whole"), stop_at, False, True, steps, False)[0]
    run_ranks(before, _run, str(tmp_path / "c"), stop_at, False, True, steps)
    rest, seen = run_ranks(after, _run, str(tmp_path / "c"), None, True, True, steps)[0]
    assert len(rest) == len(whole) - stop_at
    assert seen == order[stop_at:]
    torch.testing.assert_close(rest, whole[stop_at:], rtol=1e-5, atol=1e-6)


def test_whole_batches_go_on_where_they_were(tmp_path):
    """2 ranks take 2 batches a step: 2 steps are 4 batches, 4 steps of one process."""
    _, order = run_ranks(2, _run, str(tmp_path / "c"), 2, False, False)[0]
    done = [n for batch in order for n in batch]
    assert len(done) == 16
    _, seen = run_ranks(1, _run, str(tmp_path / "c"), None, True, False)[0]
    assert sorted(done + seen[0] + seen[1]) == list(range(24))
    assert len(seen) == 2 + 2 * 6


@pytest.mark.parametrize("split", [True, False])
def test_batches_that_are_divided_otherwise(split, tmp_path):
    """2 ranks take 2 batches a step, or one that they share: 2 steps are 4 batches, or 2."""
    _, order = run_ranks(2, _run, str(tmp_path / "c"), 2, False, split)[0]
    done = [n for batch in order for n in batch]
    _, seen = run_ranks(2, _run, str(tmp_path / "c"), None, True, not split)[0]
    rest = seen[: len(seen) - 2 * (6 if split is False else 3)]
    assert sorted(done + [n for batch in rest for n in batch]) == list(range(24))


def _later(directory, load):
    """The second loader is prepared after load_state in the resumed run, as one of an evaluation may be."""
    torch.manual_seed(3)
    accelerator = fresh_accelerator(split_batches=True)
    first = DataLoader(TensorDataset(torch.arange(8)), batch_size=4, shuffle=True)
    second = DataLoader(TensorDataset(torch.arange(8)), batch_size=4, shuffle=True)
    if not load:
        first, second = accelerator.prepare(first, second)
        for _ in first:
            pass
        # Stopped within the second.
        found = []
        for (x,) in second:
            found.append(accelerator.gather(x).tolist())
            if len(found) == 1:
                accelerator.save_state(directory)
        return found
    first = accelerator.prepare(first)
    accelerator.load_state(directory)
    second = accelerator.prepare(second)
    return [accelerator.gather(x).tolist() for (x,) in second]


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_loader_that_is_prepared_later(ranks, tmp_path):
    whole = run_ranks(ranks, _later, str(tmp_path / "c"), False)[0]
    assert run_ranks(ranks, _later, str(tmp_path / "c"), True)[0] == whole[1:]


def _project(directory, value, count, load=False, limit=2):
    config = ProjectConfiguration(directory, automatic_checkpoint_naming=True, total_limit=limit)
    accelerator = fresh_accelerator(project_config=config)
    model = accelerator.prepare(nn.Linear(1, 1, bias=False))
    weight = accelerator.unwrap_model(model).weight
    nn.init.constant_(weight, value)
    if load:
        accelerator.load_state()
    loaded = weight.item()
    for _ in range(count):
        with torch.no_grad():
            weight += 1
        accelerator.save_state()
    return loaded, weight.item()


def _there(folder):
    return sorted(int(re.sub(r"\D", "", p.name)) for p in (folder / "checkpoints").iterdir())


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_new_run_in_the_directory_of_an_old_one(ranks, tmp_path):
    run_ranks(ranks, _project, str(tmp_path), 1000.0, 6)
    assert _there(tmp_path) == [4, 5]
    # The new run's are the newest, and its limit leaves the old run's alone.
    run_ranks(ranks, _project, str(tmp_path), 1.0, 3)
    assert _there(tmp_path) == [4, 5, 7, 8]
    assert run_ranks(ranks, _project, str(tmp_path), -1.0, 0, True)[0] == (4.0, 4.0)
    # Who goes on with a run has its limit.
    run_ranks(ranks, _project, str(tmp_path), -1.0, 1, True)
    assert _there(tmp_path) == [4, 5, 8, 9]


def _two_jobs(directory, value):
    return _project(directory, value, 4, limit=None)


def test_two_jobs_in_one_directory(tmp_path):
    import multiprocessing

    context = multiprocessing.get_context("spawn")
    jobs = [context.Process(target=_two_jobs, args=(str(tmp_path), value)) for value in (0.0, 1000.0)]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join(200)
        assert job.exitcode == 0
    # Nothing of one is overwritten by the other.
    assert _there(tmp_path) == list(range(8))
