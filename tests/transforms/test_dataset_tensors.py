"""A script that names no device takes the launch's where all that its models see comes in batches of loaders."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelify.convert import convert_source
from accelify.source import Source

SCRIPT = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

{data}
loader = DataLoader(data, batch_size=8, shuffle=True)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    loss = nn.functional.mse_loss(model(x){more}, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
torch.save(model.state_dict(), "model.pt")
"""
BY_NAMES = """\
x = torch.randn(64, 4)
w = torch.randn(4, 1)
y = x @ w
y += 0.1 * torch.randn(64, 1)
data = TensorDataset(x, y)
"""


@pytest.mark.parametrize(
    "data",
    [
        "data = TensorDataset(torch.randn(64, 4), 2 * torch.randn(64, 1))",
        "x, y = torch.randn(64, 4), torch.randn(64, 1)\ndata = TensorDataset(x, y)",
        BY_NAMES,
        "data = [*zip(torch.randn(64, 4), torch.randn(64, 1))]",
    ],
)
def test_tensors_for_data_sets_keep_nothing_on_the_cpu(data: str) -> None:
    text = convert_source(Source.from_text(SCRIPT.format(data=data, more=""), Path("train.py"))).new_text
    assert "accelerator = Accelerator()\n" in text


@pytest.mark.parametrize("more", [" + w.sum()", " * torch.ones(1)"])
def test_tensors_that_meet_a_batch_do(more: str) -> None:
    script = SCRIPT.format(data=BY_NAMES, more=more)
    text = convert_source(Source.from_text(script, Path("train.py"))).new_text
    assert "accelerator = Accelerator(cpu=True)\n" in text
