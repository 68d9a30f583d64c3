"""Scripts without code for a GPU that take models to the CPU by hand: where their batches go."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelify.convert import convert_source
from accelify.source import Source

SCRIPT = """\
import torch
from torch import nn
from torch.utils.data import DataLoader
from attacks import attack

data = torch.load("data.pt")
loader = DataLoader(data, batch_size=8, shuffle=True)
others = [torch.load("a.pt"), torch.load("b.pt")]
model = nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for i, (x, y) in enumerate(loader):
    other = others[i % 2]
    loss = nn.functional.cross_entropy(model(attack(other, x, y)), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
torch.save(model.state_dict(), "model.pt")
"""
ATTACKS = """\
import torch

def attack(model, x, y):
    x = x.clone().requires_grad_(True)
    (slope,) = torch.autograd.grad(torch.nn.functional.cross_entropy(model(x), y), x)
    return (x + 0.1 * slope.sign()).detach()
"""


@pytest.mark.parametrize(
    ("old", "new", "stays"),
    [
        ("other = others[i % 2]", "other = others[i % 2].cpu()", True),
        ("other = others[i % 2]", "other = others[i % 2].to('cpu')", True),
        ("", "", False),
        ("model.state_dict()", "model.cpu().state_dict()", False),
        ("attack(other, x, y)", "x.cpu()", False),
    ],
)
def test_a_model_that_runs_on_the_cpu_has_its_batches_there(
    tmp_path: Path, old: str, new: str, stays: bool
) -> None:
    (tmp_path / "attacks.py").write_text(ATTACKS)
    source = Source.from_text(SCRIPT.replace(old, new, 1) if old else SCRIPT, tmp_path / "train.py")
    conversion = convert_source(source)
    assert conversion.status == "converted", conversion.reason
    assert ("Accelerator(cpu=True)" in conversion.new_text) is stays
