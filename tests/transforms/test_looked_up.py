"""What a script reads by name makes nothing of another module run, but where functions can be meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelify.conversion import Conversion
from accelify.convert import convert_paths

LOSSES = """
class Step:
    def __init__(self, criterion, optimizer):
        self.criterion, self.optimizer = criterion, optimizer

    def __call__(self, output, y):
        loss = self.criterion(output, y)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.item()


class Unused:
    def __init__(self, criterion):
        self.criterion = criterion

    def __call__(self, output, y):
        self.criterion(output, y).sum().backward()
"""
TRAIN = """
import argparse

import losses
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from losses import Step

args = argparse.ArgumentParser().parse_args()
{line}
model = nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
step = Step(nn.MSELoss(), optimizer)
for x, y in DataLoader(TensorDataset(torch.randn(16, 3), torch.randn(16, 1)), batch_size=4):
    print(step(model(x), y))
"""


def convert(folder: Path, line: str) -> Conversion:
    (folder / "losses.py").write_text(LOSSES)
    (folder / "train.py").write_text(TRAIN.format(line=line))
    return next(c for c in convert_paths([folder / "train.py"]) if c.source.path == folder / "train.py")


@pytest.mark.parametrize(
    "line",
    [
        "print(args.__dict__)",
        "print(dict(**args.__dict__))",
        "args.__dict__.update(width=3)",
        "print(args.__dict__['width'])",
        "for name, value in args.__dict__.items():\n    print(name, value)",
    ],
)
def test_options_call_nothing(tmp_path: Path, line: str) -> None:
    conversion = convert(tmp_path, line)
    assert conversion.status == "converted", conversion.reason


@pytest.mark.parametrize(
    "line",
    [
        "print(losses.__dict__)",
        "made = losses.__dict__[args.name]",
        "def make(module):\n    return module.__dict__[args.name]",
        "def make(module):\n    return module.__dict__.get(args.name)",
        "def make(module):\n    return [one for one in module.__dict__.values()]",
    ],
)
def test_of_a_module_any_name_may_be_meant(tmp_path: Path, line: str) -> None:
    assert convert(tmp_path, line).status != "converted"
