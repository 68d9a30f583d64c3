"""Helpers that compute a lot from each batch: what comes after them is looked at, and where it is not that is noted."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelify.conversion import UNCHANGED, left_alone
from accelify.findings import Severity
from accelify.knowledge import Knowledge
from accelify.obligations import Status, validate
from accelify.proving import checked
from accelify.source import Source

LINES = "\n".join(f"        width_{n} = width_{n - 1} + len(text) * {n}" for n in range(1, 40))
SCRIPT = f"""\
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader
from data import Texts


def described(text, width_0=0):
    for _ in text:
{LINES}
    return str(width_39) + text


accelerator = Accelerator()
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters())
loader = DataLoader(Texts())
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
total = 0
for x, text in loader:
    words = [described(text), described(text + "."), described(text + " " + str(total)), described("a " + text)]
    words += [described(word) for word in words]
    total += len(described(words[0] + words[1]))
    loss = model(x).mean()
    accelerator.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
if accelerator.is_main_process:
    accelerator.wait_for_everyone()
"""
BUDGET = 150


def line_of(text: str) -> int:
    return SCRIPT[: SCRIPT.index(text)].count("\n") + 1


def test_what_comes_after_them_is_looked_at() -> None:
    found = validate(SCRIPT, None, Knowledge(), budget=BUDGET, checks=True)
    assert not found.stopped
    named = [one.line for one in found.of(Status.NAMED) if one.demand == "all ranks"]
    assert named == [line_of("    accelerator.wait_for")]


@pytest.mark.parametrize("budget", [40, BUDGET])
def test_a_budget_that_ends_before_the_script_is_noted(budget: int) -> None:
    source = Source.from_text(SCRIPT, Path("train.py"))
    found = checked(left_alone(source, UNCHANGED, "it has an Accelerator"), budget)
    assert found is not None
    notes = [one for one in found if one.code == "ACC013"]
    assert len(notes) == (budget < BUDGET)
    for note in notes:
        assert note.severity is Severity.INFO
        assert f"lines {note.line}-" in note.message
        assert str(line_of("    accelerator.wait_for")) in note.message
