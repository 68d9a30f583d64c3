"""Data sets without an index, in scripts that are written for several processes: which of them give each its share."""

from __future__ import annotations

import pytest

from tests.proving.several_programs import GROUP, LOOP, named

HEAD = """
import itertools, random
import numpy as np
class Rows(IterableDataset):
    def __init__(self, path):
        self.path = path
        self.rows = torch.load(path, map_location="cpu")
        {made}
    def changed(self, row):
        return row + torch.randn(4)
    def __iter__(self):
        {body}
"""
MADE = """
model = DDP(torch.nn.Linear(4, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(Rows("rows"), batch_size=4)
"""
BY_RANK = (
    "for row in itertools.islice(self.rows, dist.get_rank(), None, dist.get_world_size()): yield row, 1",
    "yield from self.rows[dist.get_rank()::dist.get_world_size()]",
    """
        for number, row in enumerate(self.rows):
            if number % dist.get_world_size() == dist.get_rank():
                yield row, 1
    """,
)
AT_RANDOM = (
    """
        while True:
            yield self.rows[np.random.randint(100)], 1
    """,
    """
        for _ in range(100):
            yield self.rows[random.randrange(100)], 1
    """,
    """
        while True:
            part = self.rows[np.random.randint(100)]
            kept = [row for row in part if row.sum() > 0]
            for row in np.stack(kept):
                yield row, 1
    """,
)
ALL = (
    "yield from self.rows",
    "for row in self.rows: yield row + torch.randn(4), 1",
    "for row in self.rows: yield self.changed(row), 1",
    """
        with open(self.path) as lines:
            for line in lines:
                row = torch.tensor(eval(line))
                if random.random() < 0.5:
                    row = row.flip(0)
                yield row, 1
    """,
    """
        generator = np.random.default_rng(0)
        while True:
            yield self.rows[generator.integers(100)], 1
    """,
)


def codes(body, tmp_path, made="pass"):
    text = HEAD.format(made=made, body=body.strip()) + GROUP + MADE + LOOP
    return [code for code, _ in named(text, tmp_path)]


@pytest.mark.parametrize("body", [*BY_RANK, *AT_RANDOM])
def test_items_by_the_rank_and_drawn_by_each_process_are_its_own(body, tmp_path):
    assert codes(body, tmp_path) == []


@pytest.mark.parametrize("body", ALL)
def test_all_of_the_data_changed_at_random_or_not_is_no_share(body, tmp_path):
    assert codes(body, tmp_path) == ["ACC705"]


def test_data_that_each_process_draws_are_its_own(tmp_path):
    made = "self.rows = np.random.rand(100, 4)"
    assert codes("for row in self.rows: yield row, 1", tmp_path, made) == []


STREAMED = """
from {library} import StreamingDataset
class Rows(StreamingDataset):
    def __getitem__(self, index):
        return torch.tensor(super().__getitem__(index)["x"])
accelerator = Accelerator()
loader = DataLoader({made}, batch_size=4)
net = torch.nn.Linear(4, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
{prepared} = accelerator.prepare({prepared})
for x in loader:
    accelerator.backward(net(x).mean())
    opt.step()
    opt.zero_grad()
"""


@pytest.mark.parametrize("made", ['Rows(local="data")', 'StreamingDataset(local="data")'])
@pytest.mark.parametrize("library", ["streaming", "litdata"])
@pytest.mark.parametrize(
    ("prepared", "lines"),
    [("net, opt", []), ("net, opt, loader", ["net, opt, loader = accelerator.prepare(net, opt, loader)"])],
)
def test_one_that_shares_itself_out_needs_no_preparation(made, library, prepared, lines, tmp_path):
    text = STREAMED.format(made=made, library=library, prepared=prepared)
    found = [one for one in named(text, tmp_path, "accelerate") if one[0] != "ACC710"]
    assert [line for _, line in found] == lines


def test_one_of_another_library_that_is_not_prepared_is_the_same_for_all(tmp_path):
    text = STREAMED.format(made='Rows(local="data")', library="rows_of_mine", prepared="net, opt")
    assert ("ACC705", "accelerator.backward(net(x).mean())") in named(text, tmp_path, "accelerate")
