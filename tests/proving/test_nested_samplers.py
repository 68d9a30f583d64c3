"""Samplers of a project that go through other ones: what divides the data is in the innermost."""

from __future__ import annotations

import pytest

from tests.proving.several_programs import named

TEXT = """
class Shares(Sampler):
    def __init__(self, data):
        self.size, self.rank = len(data) // dist.get_world_size(), {rank}
    def __iter__(self):
        return iter(range(self.size * self.rank, self.size * (self.rank + 1)))
class Rounds:
    def __init__(self, batches, most):
        self.batches, self.most, self.logger = batches, most, Logger()
    def __iter__(self):
        for number, batch in enumerate(self.batches):
            if number == self.most:
                break
            yield batch
class Logger:
    def __init__(self):
        self.rank = dist.get_rank()
dist.init_process_group("gloo")
model = DDP(torch.nn.Linear(4, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
batches = torch.utils.data.sampler.BatchSampler(Shares(data), 4, drop_last=True)
loader = DataLoader(data, batch_sampler=Rounds(batches, 9))
for x, y in loader:
    opt.zero_grad()
    F.mse_loss(model(x), y).backward()
    opt.step()
"""


@pytest.mark.parametrize(
    ("rank", "found"),
    [("dist.get_rank()", []), ("0", [("ACC705", "F.mse_loss(model(x), y).backward()")])],
)
def test_what_divides_the_data_in_other_samplers(rank, found, tmp_path):
    assert named(TEXT.format(rank=rank), tmp_path) == found


@pytest.mark.parametrize(
    ("rank", "found"),
    [("dist.get_rank()", []), ("0", [("ACC705", "F.mse_loss(model(x), y).backward()")])],
)
def test_a_list_of_what_divides_the_data(rank, found, tmp_path):
    text = TEXT.format(rank=rank).replace("batch_sampler=Rounds(batches, 9)", "batch_size=4")
    text = text.replace("yield batch", "yield self.batches[batch]").replace(
        "DataLoader(data", "DataLoader(rows"
    )
    text = text.replace("iter(range(", "(data[i] for i in range(").replace(
        "batches =", "rows = list(Shares(data)) #"
    )
    assert named(text, tmp_path) == found
