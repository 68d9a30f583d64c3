"""Copies of objects that have a prepared model, and prepare an optimizer."""

from __future__ import annotations

import pytest

from accelify.knowledge import Knowledge
from accelify.obligations import Status, validate

TEXT = """\
import copy
import torch
from accelify.runtime import Accelerator
class Trainer:
    def __init__(self, accelerator, model):
        self.accelerator, self.parts = accelerator, {{"model": model}}
    def start(self):
        optimizer = torch.optim.SGD(self.parts["model"].parameters(), lr=0.1)
        {prepared}
accelerator = Accelerator()
model = torch.nn.Linear(4, 1)
{first}
trainer = Trainer(accelerator, model)
trial = {copied}
trial.start()
"""
PREPARED = "self.optimizer = self.accelerator.prepare(optimizer)"
FIRST = "model = accelerator.prepare(model)"


@pytest.mark.parametrize(
    ("prepared", "first", "copied", "named"),
    [
        (PREPARED, FIRST, "copy.deepcopy(trainer)", True),
        (PREPARED, FIRST, "trainer", False),
        (PREPARED, FIRST, "copy.copy(trainer)", False),
        (PREPARED, "", "copy.deepcopy(trainer)", False),
        ("self.optimizer = optimizer", FIRST, "copy.deepcopy(trainer)", False),
    ],
)
def test_a_copy_that_prepares_an_optimizer(prepared: str, first: str, copied: str, named: bool) -> None:
    text = TEXT.format(prepared=prepared, first=first, copied=copied)
    found = validate(text, None, Knowledge()).of(Status.NAMED)
    assert any("copies a prepared model" in one.found for one in found) is named
