"""Batches that the main process reads: every rank is sent its own share, and nothing else."""

import pickle
from unittest.mock import patch

import pytest
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader

from accelify.runtime import DataLoaderConfiguration
from tests.distributed.processes import fresh_accelerator, run_ranks

pytestmark = pytest.mark.distributed

WIDTH = 1000


def _received(split):
    notes, sizes = [], []
    scatter, isend = dist.scatter_object_list, dist.isend

    def noting(box, parts, **kwargs):
        notes.extend(len(pickle.dumps(part)) for part in (parts or [])[1:])
        return scatter(box, parts, **kwargs)

    def measuring(content, rank):
        sizes.append(content.numel())
        return isend(content, rank)

    config = DataLoaderConfiguration(dispatch_batches=True, split_batches=split)
    accelerator = fresh_accelerator(dataloader_config=config)
    data = [{"x": torch.full((WIDTH,), float(i)), "name": str(i)} for i in range(14)]
    held, seen = [], []
    with patch.object(dist, "scatter_object_list", noting), patch.object(dist, "isend", measuring):
        for batch in accelerator.prepare(DataLoader(data, batch_size=4)):
            held.append(batch["x"].untyped_storage().nbytes())
            assert [str(int(v)) for v in batch["x"][:, 0]] == batch["name"]
            seen.append(batch["name"])
    return seen, held, notes, sizes


@pytest.mark.parametrize("split", [False, True])
def test_ranks_are_sent_their_share_alone(split):
    (_, _, notes, sizes), (seen, held, _, _) = run_ranks(2, _received, split)
    expected = (
        [["2", "3"], ["6", "7"], ["10", "11"], ["13"]]
        if split
        else [["4", "5", "6", "7"], ["11", "12", "13"]]
    )
    assert seen == expected
    assert sizes == held == [len(names) * WIDTH * 4 for names in expected]
    # What is pickled does not hold the numbers.
    assert max(notes) < 1000


class Endless:
    """The batches of a sampler, over and over."""

    def __init__(self, batches):
        self.batches = batches

    def __iter__(self):
        while True:
            yield from self.batches


class GoesOn(DataLoader):
    """Has one iterator for all epochs, so that its workers stay."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        object.__setattr__(self, "batch_sampler", Endless(self.batch_sampler))
        self.iterator = super().__iter__()

    def __len__(self):
        return len(self.batch_sampler.batches)

    def __iter__(self):
        for _ in range(len(self)):
            yield next(self.iterator)


def _epochs(split):
    config = DataLoaderConfiguration(split_batches=split)
    accelerator = fresh_accelerator(dataloader_config=config)
    order = torch.Generator().manual_seed(3)
    loader = accelerator.prepare(GoesOn(torch.arange(10.0), batch_size=4, shuffle=True, generator=order))
    return [[batch.tolist() for batch in loader] for _ in range(2)], len(loader)


@pytest.mark.parametrize("split", [False, True])
def test_a_loader_that_goes_on_with_the_iterator_that_it_began(split):
    alone, length = _epochs(split)
    assert length == 3
    ranks = [found for found, _ in run_ranks(2, _epochs, split)]
    for epoch, batches in enumerate(alone):
        shares = [share for both in zip(*(rank[epoch] for rank in ranks), strict=True) for share in both]
        if split:
            assert [a + b for a, b in zip(shares[::2], shares[1::2], strict=True)] == batches
        else:
            assert shares[:2] == batches[:2]
            assert [*shares[2], *shares[3]] == batches[2]
