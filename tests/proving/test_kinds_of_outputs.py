"""What a test for a tuple says of what a model gives: how many parts it has, and not how many samples."""

from __future__ import annotations

import pytest

from accelify.convert import convert_source
from accelify.proving import prove
from accelify.source import Source

SCRIPT = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

loader = DataLoader(TensorDataset(torch.randn(20, 4), torch.randn(20, 1)), batch_size=4)
model = nn.Linear(4, 1)
criterion = nn.MSELoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for x, y in loader:
    out = model(x)
    {line}
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def named(line: str) -> set[str]:
    found = convert_source(Source.from_text(SCRIPT.format(line=line)))
    prove([found], found)
    return {one.code for one in found.remaining}


@pytest.mark.parametrize(
    "line",
    [
        "if isinstance(out, tuple) and len(out) == 2: loss = criterion(out, y)",
        "if isinstance(out, (tuple, list)):\n        if len(out) > 1: loss = criterion(out, y)",
        "if not isinstance(out, tuple): pass\n    elif len(out) == 2: loss = criterion(out, y)",
        "if not isinstance(out, tuple) or len(out) < 2: loss = criterion(out, y)",
        "if (len(out) if isinstance(out, list) else 1) > 2: loss = criterion(out, y)",
        "loss = criterion(out, y)\n    if isinstance(out, tuple):\n        for one in out: loss += criterion(one, y)",
    ],
)
def test_how_many_parts(line: str) -> None:
    assert not named(line)


@pytest.mark.parametrize(
    "line",
    [
        "if len(out) == 2: loss = criterion(out, y)",
        "if isinstance(out, torch.Tensor) and len(out) == 2: loss = criterion(out, y)",
        "if not isinstance(out, tuple) and len(out) == 2: loss = criterion(out, y)",
        "if isinstance(out, tuple) and len(out[0]) == 2: loss = criterion(out, y)",
        "if isinstance(out, tuple):\n        first, _ = out\n        if len(first) == 2: loss = criterion(out, y)",
        "if isinstance(out, tuple): pass\n    if len(out) == 2: loss = criterion(out, y)",
        "if isinstance(out, tuple):\n        out = out[0]\n    if len(out) == 2: loss = criterion(out, y)",
    ],
)
def test_how_many_samples(line: str) -> None:
    assert named(line)
