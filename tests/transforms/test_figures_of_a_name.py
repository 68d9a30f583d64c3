"""Figures that bear one name: each function that keeps one, in whichever module, is named once."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelify.convert import convert_project
from accelify.obligations import Status
from accelify.proving import prove
from accelify.source import Source
from tests.transforms.support import convert

AVERAGE = """
class Average:
    def __init__(self):
        self.n, self.value = 0, 0
    def add(self, x):
        self.value = (self.value * self.n + x) / (self.n + 1)
        self.n += 1
    def item(self):
        return self.value
"""
TRAIN = """
def {name}(again=False):
    {kept} = Average()
    for x, y in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        {kept}.add(loss.item())
        if again:
            {kept}.add(2 * loss.item())
    return {kept}.item()
"""


@pytest.mark.parametrize("second", ["kept", "other"])
def test_two_functions(second: str) -> None:
    both = TRAIN.format(name="first", kept="kept") + TRAIN.format(name="second", kept=second)
    conversion = convert(ready=AVERAGE + both, epoch="print(first())\nprint(second())")
    found = prove([conversion], conversion)
    assert len([one for one in found.of(Status.NAMED) if one.demand == "content"]) == 2


TRAINER = """\
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset
from util import Average


class Trainer{of}:
    def __init__(self):
        self.data = TensorDataset(torch.randn(64, 4), torch.randint(0, 3, (64,)))
        self.loader = DataLoader(self.data, batch_size=8, shuffle=True)
        self.model = torch.nn.Linear(4, 3)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def train(self):
        kept = Average()
        for x, y in self.loader:
            loss = F.cross_entropy(self.model(x), y)
            kept.add(loss.item())
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        print(kept.item())
"""
SCRIPT = """\
import sys
from ma import TrainerA
from mb import TrainerB

if sys.argv[1] == "a":
    trainer = TrainerA()
    trainer.train()
else:
    trainer = TrainerB()
    trainer.train()
"""


def test_two_modules(tmp_path: Path) -> None:
    (tmp_path / "util.py").write_text(AVERAGE)
    for of in "AB":
        (tmp_path / f"m{of.lower()}.py").write_text(TRAINER.format(of=of))
    (tmp_path / "train.py").write_text(SCRIPT)
    every = convert_project(Source.read(tmp_path / "train.py"))
    found = prove(every, next(one for one in every if one.place == tmp_path / "train.py"))
    assert {one.path for one in found.of(Status.NAMED) if one.demand == "content"} == {"ma.py", "mb.py"}
