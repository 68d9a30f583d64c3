"""Batches of a TensorDataset that are read in one piece are those that torch reads sample by sample."""

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from accelify.runtime.data.whole_tensors import WholeTensors, reads_rows

KINDS = [torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.uint8, torch.bool, torch.complex64]


def _fetcher(dataset, **options):
    return iter(DataLoader(dataset, batch_size=3, **options))._dataset_fetcher


def _same(one, other):
    assert type(one) is type(other)
    for a, b in zip(one, other, strict=True):
        assert (a.dtype, a.shape, a.stride()) == (b.dtype, b.shape, b.stride())
        assert torch.equal(a, b)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(8,), (8, 3), (8, 1, 2, 2)])
def test_the_batch_is_the_same(kind, shape):
    data = TensorDataset(torch.arange(8), (torch.randn(*shape) * 3).to(kind))
    fetcher = _fetcher(data)
    assert reads_rows(fetcher)
    for indices in ([5], [7, 0, 3], [2, 2, 2], [-1, 0], [torch.tensor(4), torch.tensor(1)]):
        _same(WholeTensors(fetcher).fetch(indices), fetcher.fetch(indices))


def test_a_batch_shares_no_memory_with_the_data():
    data = TensorDataset(torch.zeros(4, 2))
    WholeTensors(_fetcher(data)).fetch([0, 1])[0].add_(1)
    assert not data.tensors[0].any()


def test_tensors_that_are_exchanged_on_the_way_are_seen():
    data = TensorDataset(torch.zeros(4, 2))
    reader = WholeTensors(_fetcher(data))
    data.tensors = (torch.ones(4, 2),)
    assert reader.fetch([0, 3])[0].all()


def test_an_index_past_the_end_is_an_error():
    with pytest.raises(IndexError):
        WholeTensors(_fetcher(TensorDataset(torch.zeros(4, 2)))).fetch([0, 4])


class _Own(TensorDataset):
    def __getitem__(self, index):
        return super().__getitem__(index)[0] + 1


@pytest.mark.parametrize(
    ("dataset", "options"),
    [
        (_Own(torch.zeros(4, 2)), {}),
        (TensorDataset(torch.zeros(4, 2)), {"collate_fn": lambda samples: samples}),
        (TensorDataset(torch.zeros(2, 4).T), {}),
        (TensorDataset(torch.zeros(4, 2, requires_grad=True)), {}),
        (TensorDataset(torch.eye(4).to_sparse()), {}),
        ([torch.zeros(2)] * 4, {}),
    ],
)
def test_others_are_read_by_torch(dataset, options):
    assert not reads_rows(_fetcher(dataset, **options))
