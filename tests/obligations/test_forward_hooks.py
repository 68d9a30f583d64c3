"""What a model's hooks keep of its calls is of this rank's rows; assertions that count these alone."""

from __future__ import annotations

import pytest

from accelify.knowledge import Knowledge
from accelify.obligations import Status, validate

KNOWLEDGE = Knowledge()
TEXT = """\
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader
from accelify.runtime import Accelerator
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(4, 8), nn.Linear(8, 2)
        self.last, self.calls = {{}}, 0
        def note(module, given, output):
            self.last["output"] = output.detach()
        def note_given(module, given):
            self.last["output"] = given[0]
        self.body.register_forward_hook(note)
        {registered}
    def count(self, module, given, output):
        self.calls += 1
    def forward(self, x):
        return self.head(self.body(x))
accelerator = Accelerator()
net, data = Net(), torch.load("d")
model, loader = accelerator.prepare(net, DataLoader(data, batch_size=8))
whole = DataLoader(data)
found = []
with torch.no_grad():
    for x, y in {loader}:
        features = model(x)
        features = {features}
        found.append(features.cpu().numpy())
found = np.concatenate(found)
{end}
"""
LAST = 'net.last["output"]'
PRINTED = "accelerator.print(found.mean())"


def named(
    features: str = LAST, end: str = PRINTED, loader: str = "loader", registered: str = ""
) -> list[str]:
    text = TEXT.format(features=features, end=end, loader=loader, registered=registered)
    return [f"{one.sink}/{one.demand}" for one in validate(text, None, KNOWLEDGE).of(Status.NAMED)]


@pytest.mark.parametrize(
    "registered",
    ["", "self.body.register_forward_pre_hook(note_given)", "self.head.register_forward_hook(self.count)"],
)
def test_what_a_hook_keeps(registered: str) -> None:
    assert named(registered=registered) == ["terminal.write/content"]
    assert named(f"{LAST} if data else features", registered=registered) == ["terminal.write/content"]
    assert named(f"accelerator.gather_for_metrics({LAST})", registered=registered) == []
    assert named(loader="whole", registered=registered) == []


@pytest.mark.parametrize("count", ["len(found) == 16", "16 == len(found)", "len(found) == len(data)"])
def test_an_assertion_that_counts_a_share(count: str) -> None:
    assert named(end=f"assert {count}") == ["misuse/rounds"]
    assert named("accelerator.gather_for_metrics(features)", end=f"assert {count}") == []
    assert named(end=f"assert {count.replace('==', '>')}") == []


@pytest.mark.parametrize(
    "end", ["assert len(found)", "assert len(loader) == len(loader)", "assert found.shape[1] == 8"]
)
def test_an_assertion_of_something_else(end: str) -> None:
    assert named(end=end) == []
