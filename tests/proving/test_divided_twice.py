"""Data that are each process's share by its rank, and prepared, which divides them once more."""

from __future__ import annotations

import pytest

from tests.proving.several_programs import named

HEAD = """
from datasets import load_dataset
from datasets.distributed import split_dataset_by_node
from torch.utils.data import IterableDataset, Subset
class Rows(IterableDataset):
    def __init__(self, rows, rank, size):
        self.rows, self.rank, self.size = rows, rank, size
    def __iter__(self):
        for number in range(self.rank, len(self.rows), self.size):
            yield self.rows[number]
class Noisy(IterableDataset):
    def __init__(self, rows, rank):
        self.rows, self.generator = rows, torch.Generator().manual_seed(rank)
    def __iter__(self):
        for x, y in self.rows:
            yield x + torch.randn(4, generator=self.generator), y
accelerator = Accelerator()
rank, size = accelerator.process_index, accelerator.num_processes
model = torch.nn.Linear(4, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
"""
TRAIN = """
for x, y in loader:
    accelerator.backward(F.mse_loss(model(x), y))
    opt.step()
    opt.zero_grad()
"""
SHARES = (
    "Rows(data, rank, size)",
    "Subset(data, range(rank, len(data), size))",
    'split_dataset_by_node(load_dataset("a", streaming=True)["train"], rank=rank, world_size=size)',
)
PREPARE = "model, opt, loader = accelerator.prepare(model, opt, loader)"


@pytest.mark.parametrize("share", SHARES)
def test_a_share_that_is_prepared_is_divided_twice(share, tmp_path):
    text = f"{HEAD}loader = DataLoader({share}, batch_size=4)\n{PREPARE}\n{TRAIN}"
    assert ("ACC712", PREPARE) in named(text, tmp_path, "accelerate")


@pytest.mark.parametrize("share", SHARES)
def test_one_that_is_not_prepared_is_divided_once(share, tmp_path):
    prepare = "model, opt = accelerator.prepare(model, opt)"
    text = f"{HEAD}loader = DataLoader({share}, batch_size=4)\n{prepare}\n{TRAIN}"
    assert not any(line == prepare for _, line in named(text, tmp_path, "accelerate"))


@pytest.mark.parametrize("rows", ["data", "Noisy(data, rank)"])
def test_all_data_are_divided_once(rows, tmp_path):
    text = f"{HEAD}loader = DataLoader({rows}, batch_size=4)\n{PREPARE}\n{TRAIN}"
    assert not any(line == PREPARE for _, line in named(text, tmp_path, "accelerate"))
