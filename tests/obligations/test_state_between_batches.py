"""What the engine says of states that models take from one batch to the next."""

from __future__ import annotations

import pytest

from accelify.knowledge import Knowledge
from accelify.obligations import Status, validate

KNOWLEDGE = Knowledge()
SCRIPT = """\
import torch
from torch import nn
from torch.utils.data import DataLoader
from accelify.runtime import Accelerator
accelerator = Accelerator()
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.steps, self.out = nn.LSTM(4, 8, batch_first=True), nn.Linear(8, 1)
        self.begin()
    def begin(self):
        self.state = {begin}
    def forward(self, x):
        {first}
        h, self.state = self.steps(x, self.state)
        {after}
        return self.out(h[:, -1])
loader, net = accelerator.prepare(DataLoader(torch.load("d"), batch_size=6), Net())
for x, y in loader:
    {before}
    accelerator.backward(((net(x) - y) ** 2).mean())
"""
ZEROS = "(torch.zeros(1, 6, 8), torch.zeros(1, 6, 8))"
CUT = "self.state = tuple(one.detach() for one in self.state)"


def named(begin: str = ZEROS, first: str = "pass", after: str = "pass", before: str = "pass") -> list[str]:
    text = SCRIPT.format(begin=begin, first=first, after=after, before=before)
    return [f"{one.sink}/{one.demand}" for one in validate(text, None, KNOWLEDGE).of(Status.NAMED)]


@pytest.mark.parametrize("begin", [ZEROS, "None"])
@pytest.mark.parametrize(
    "after", [CUT, "self.state = (self.state[0].detach(), self.state[1].detach())", "pass"]
)
def test_a_state_that_goes_on_is_named(begin: str, after: str) -> None:
    assert named(begin, after=after) == ["backward/rounds"]


@pytest.mark.parametrize("after", [CUT, "pass"])
def test_a_state_that_begins_anew_is_not_named(after: str) -> None:
    assert named(first="self.begin()", after=after) == []
    assert named(before="accelerator.unwrap_model(net).begin()", after=after) == []
    assert named("None", after="self.state = None") == []
