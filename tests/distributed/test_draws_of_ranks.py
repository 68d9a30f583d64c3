"""What ranks draw within passes, each for itself, and between them, all alike."""

import random

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import ConcatDataset, DataLoader, Dataset, TensorDataset

from accelify.runtime import skip_first_batches
from tests.distributed.processes import fresh_accelerator, run_ranks

pytestmark = pytest.mark.distributed


class Drawn(Dataset):
    """Samples that are picked by Python's and NumPy's generators."""

    def __getitem__(self, i):
        return i, random.random(), float(np.random.rand())

    def __len__(self):
        return 12


def _drawn(skip):
    fresh_accelerator()
    random.seed(3)
    np.random.seed(3)
    torch.manual_seed(3)
    accelerator = fresh_accelerator()
    loader = accelerator.prepare(DataLoader(Drawn(), batch_size=2, shuffle=True))
    passes = []
    for _ in range(2):
        batches = skip_first_batches(loader, skip) if skip else loader
        passes.append([[part.tolist() for part in batch] for batch in batches])
    return passes, random.random(), float(np.random.rand())


def test_each_rank_draws_samples_of_its_own_and_goes_on_alike():
    (first, *agreed), (second, *also_agreed) = run_ranks(2, _drawn, 0)
    assert agreed == also_agreed
    for kind in (1, 2):
        drawn = [x for passes in (first, second) for one in passes for batch in one for x in batch[kind]]
        assert len(set(drawn)) == len(drawn)


def test_what_is_drawn_for_a_batch_does_not_hang_on_those_before():
    (whole, *_), _ = run_ranks(2, _drawn, 0)
    (rest, *_), _ = run_ranks(2, _drawn, 1)
    assert rest[0] == whole[0][1:]


def _rounds(nested, leave):
    accelerator = fresh_accelerator()
    torch.manual_seed(3)
    loader = accelerator.prepare(DataLoader(Drawn(), batch_size=2, shuffle=True))
    other = accelerator.prepare(DataLoader(Drawn(), batch_size=2, shuffle=True))
    if leave:
        next(iter(loader))
    within = []
    for _ in loader:
        for _ in other if nested else ():
            pass
        within.append(float(torch.rand(())))
    return within, torch.randperm(90).tolist()


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("leave", [False, True])
def test_ranks_draw_apart_within_a_pass_and_alike_behind_it(nested, leave):
    (first, split), (second, other_split) = run_ranks(2, _rounds, nested, leave)
    assert split == other_split
    assert not set(first) & set(second)


def _zipped(shuffle, longer):
    """Two loaders that are made anew for every round, as where two views of shuffled data are read side by side."""
    accelerator = fresh_accelerator()
    torch.manual_seed(3)
    model = accelerator.prepare(nn.Linear(1, 1))
    splits, noise = [], []
    for _ in range(3):
        data = TensorDataset(torch.rand(16, 1))
        first = accelerator.prepare(DataLoader(data, batch_size=2, shuffle=shuffle))
        second = accelerator.prepare(
            DataLoader(ConcatDataset([data, data]) if longer else data, batch_size=2, shuffle=shuffle)
        )
        for (x,), (y,) in zip(first, second, strict=False):
            accelerator.backward((model(x) - model(y)).square().mean())
            noise.append(float(torch.rand(())))
        splits.append(torch.randperm(90).tolist())
    return splits, noise


@pytest.mark.parametrize("shuffle", [False, True])
def test_ranks_draw_alike_behind_two_loaders_that_are_read_side_by_side(shuffle):
    (splits, noise), (other_splits, other_noise) = run_ranks(2, _zipped, shuffle, False)
    assert splits == other_splits
    assert not set(noise) & set(other_noise)


def test_a_loader_that_is_not_read_to_its_end_leaves_the_ranks_apart():
    (splits, _), (other_splits, _) = run_ranks(2, _zipped, True, True)
    assert splits != other_splits


def _left(draws, passes):
    accelerator = fresh_accelerator()
    torch.manual_seed(3)
    loader = accelerator.prepare(DataLoader(Drawn(), batch_size=2, shuffle=True))
    for _ in range(passes):
        for _ in loader:
            if draws:
                torch.rand(())
            break
    return float(torch.rand(()))


def test_a_pass_that_is_left_asks_nobody():
    assert len(set(run_ranks(2, _left, True, 1))) == 2


def test_behind_a_look_at_the_first_batch_ranks_draw_alike():
    assert len(set(run_ranks(2, _left, False, 1))) == 1


def test_a_script_that_takes_its_batches_one_by_one_goes_on_apart():
    assert len(set(run_ranks(2, _left, False, 2))) == 2


def _in_order(passes, ask):
    accelerator = fresh_accelerator()
    torch.manual_seed(3)
    model = accelerator.prepare(nn.Linear(1, 1))
    loader = accelerator.prepare(DataLoader(TensorDataset(torch.rand(8, 1)), batch_size=2))
    noise = []
    for _ in range(passes):
        for (x,) in loader:
            noise.append(float(torch.rand(())))
            if ask:
                accelerator.backward(model(x).mean())
    return noise, float(torch.rand(()))


def test_noise_of_a_training_pass_in_the_order_of_the_data_is_the_ranks_own():
    (first, behind), (second, also_behind) = run_ranks(2, _in_order, 2, True)
    assert behind == also_behind
    # What is drawn before the first backward pass of a loader is still drawn by all alike.
    assert first[0] == second[0]
    assert len(set(first[1:]) | set(second[1:])) == 6


def test_noise_of_a_pass_that_does_not_train_is_everyones():
    (first, behind), (second, also_behind) = run_ranks(2, _in_order, 2, False)
    assert first == second
    assert behind == also_behind
