"""What is named together: demands that are not met for one cause."""

from __future__ import annotations

import pytest

from accelify.knowledge import Knowledge
from accelify.obligations import Status, validate
from accelify.obligations.causes import by_cause

SCRIPT = """\
import torch
from torch.utils.data import DataLoader
from accelify.runtime import Accelerator
accelerator = Accelerator()
model = torch.nn.Linear(4, 1)
loader, other = DataLoader(torch.load("a"), batch_size=8), DataLoader(torch.load("b"), batch_size=8)
model, loader, other = accelerator.prepare(model, loader, other)
batches, others = iter(loader), iter(other)
for step in range(20):
    try:
        x, y = next(batches)
    except StopIteration:
        batches = iter(loader)
        x, y = {again}
    accelerator.backward((model(x) - y).mean())
"""


@pytest.mark.parametrize(("again", "causes"), [("next(batches)", 1), ("next(others)", 2)])
def test_a_loader_that_begins_anew_is_one_cause(again: str, causes: int) -> None:
    found = validate(SCRIPT.format(again=again), None, Knowledge()).of(Status.NAMED)
    assert [one.demand for one in found] == ["rounds", "rounds"]
    assert len(by_cause(found)) == causes
