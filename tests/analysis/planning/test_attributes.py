"""Attributes that the Accelerator's arguments read."""

from __future__ import annotations

import pytest

from accelify.convert import convert_source
from accelify.source import Source

BASE = """\
import argparse
import torch
from torch import nn

args = argparse.ArgumentParser().parse_args()


class Base:
    def __init__(self, args):
        self.args = args
        self.device = torch.device('cuda') if self.args.use_gpu else torch.device('cpu')
        self.model = nn.Linear(4, 2).to(self.device)


class Trainer(Base):
    def __init__(self, {parameter}):
        super().__init__({parameter})
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def train(self):
        for x in data:
            loss = self.model(x.to(self.device)).sum()
            loss.backward()
            self.optimizer.step()


Trainer(args).train()
"""
SETTINGS = """\
import torch
from torch import nn


class Settings:
    use_gpu = True

    def read(self):
        self.device = torch.device('cuda' if self.use_gpu else 'cpu')


settings = Settings()


def train():
    settings.read()
    model = nn.Linear(4, 2).to(settings.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x in data:
        loss = model(x.to(settings.device)).sum()
        loss.backward()
        optimizer.step()


train()
"""


@pytest.mark.parametrize(
    ("parameter", "made"),
    [
        ("args", "Accelerator(cpu=not args.use_gpu)"),
        ("given", "Accelerator(cpu=not given.use_gpu)"),
        ("*given", "Accelerator(cpu=not args.use_gpu)"),
    ],
)
def test_what_a_base_class_sets_is_not_read_before(parameter: str, made: str) -> None:
    conversion = convert_source(Source.from_text(BASE.format(parameter=parameter)))
    assert conversion.status == "converted", conversion.reason
    assert f"accelerator = {made}\n" in conversion.new_text
    assert "ACC410" not in {f.code for f in conversion.remaining}


def test_what_no_constructor_sets_is_not_read() -> None:
    conversion = convert_source(Source.from_text(SETTINGS))
    assert conversion.status == "converted", conversion.reason
    assert "accelerator = Accelerator()\n" in conversion.new_text
    assert "ACC410" in {f.code for f in conversion.remaining}


ACCUMULATING = """\
import argparse
import torch
from torch import nn
from torch.utils.data import DataLoader

args = argparse.ArgumentParser().parse_args()


class Trainer:
    def __init__(self, args):
        self.args = args
        self.model = nn.Linear(4, 2)
        self.device = 'cuda' if torch.cuda.is_available() else 'cpu'
        self.model.to(self.device)
        self.steps = 2 * args.steps

    def train(self):
        loader = DataLoader(list(range(8)), batch_size=2)
        optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        for step, (x, y) in enumerate(loader):
            loss = nn.functional.mse_loss(self.model(x), y) / {steps}
            loss.backward()
            if (step + 1) % {steps} == 0:
                optimizer.step()
                optimizer.zero_grad()


Trainer(args).train()
"""


@pytest.mark.parametrize(
    ("steps", "told"), [("self.args.steps", "num_steps=args.steps"), ("self.steps", None)]
)
def test_the_steps_of_accumulation_are_known_where_they_are_told(steps: str, told: str | None) -> None:
    conversion = convert_source(Source.from_text(ACCUMULATING.format(steps=steps)))
    assert conversion.status == "converted", conversion.reason
    made = conversion.new_text.split("self.accelerator = Accelerator(")[1].split("self.model =")[0]
    assert (told is None and made.startswith(")")) or (told is not None and told in made)
    assert ("self.accelerator.accumulate(" in conversion.new_text) == (told is not None)
