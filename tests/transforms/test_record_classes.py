"""Records that keep a model and its optimizer: they are to keep what is prepared."""

from __future__ import annotations

import pytest

from accelify.conversion import Conversion
from accelify.convert import convert_source
from accelify.source import Source

SCRIPT = """import torch
from argparse import Namespace
from collections import namedtuple
from dataclasses import dataclass
from types import SimpleNamespace
from typing import NamedTuple
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

{define}


def train(state, loader):
    for x, y in loader:
        state.optimizer.zero_grad()
        nn.functional.cross_entropy(state.model(x.cuda()), y.cuda()).backward()
        state.optimizer.step()


def main():
    data = TensorDataset(torch.randn(8, 4), torch.randint(0, 2, (8,)))
    model = nn.Linear(4, 2).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    state = {make}
    loader = DataLoader(data, batch_size=8)
    train(state, loader)


main()
"""
FIELDS = "    model: nn.Module\n    optimizer: torch.optim.Optimizer\n    step: int = 0"


@pytest.mark.parametrize(
    ("define", "make"),
    [
        (f"@dataclass\nclass State:\n{FIELDS}", "State(model, optimizer)"),
        (f"@dataclass(eq=False)\nclass State:\n{FIELDS}", "State(optimizer=optimizer, model=model)"),
        (f"class State(NamedTuple):\n{FIELDS}", "State(model, optimizer)"),
        ('State = namedtuple("State", "model optimizer")', "State(model, optimizer)"),
        ('State = namedtuple("State", ["model", "optimizer"])', "State(model=model, optimizer=optimizer)"),
        ("", "SimpleNamespace(model=model, optimizer=optimizer)"),
        ("", "Namespace(model=model, optimizer=optimizer)"),
    ],
)
def test_what_a_record_keeps_is_prepared_before_it_is_made(define: str, make: str) -> None:
    text = convert_source(Source(None, SCRIPT.format(define=define, make=make))).new_text
    assert f"    model, optimizer = accelerator.prepare(model, optimizer)\n    state = {make}\n" in text
    assert "accelerator.backward(nn.functional.cross_entropy(state.model(x), y))" in text


HOOKS = """import torch
from torch import nn
from torch.utils.data import DataLoader


class Trainer:
    def __init__(self, model, loader):
        self.model, self.loader, self.hooks = model, loader, []

    def call(self, name):
        for hook in self.hooks:
            getattr(hook, name)(self)

    def run(self):
        for x, y in self.loader:
            self.loss = nn.functional.cross_entropy(self.model(x.cuda()), y.cuda())
            self.call("after")


class Step:
    def __init__(self, optimizer):
        self.optimizer = optimizer

    def after(self, trainer):
        self.optimizer.zero_grad()
        trainer.{name}.backward()
        self.optimizer.step()


model = nn.Linear(4, 2).cuda()
trainer = Trainer(model, DataLoader([], batch_size=8))
trainer.hooks.append(Step(torch.optim.SGD(model.parameters(), lr=0.1)))
trainer.run()
"""


def hooked(name: str) -> Conversion:
    return convert_source(Source(None, HOOKS.format(name=name)))


def test_a_loss_that_is_trained_on_by_name_is_not_gathered() -> None:
    assert "gather" not in hooked("loss").new_text
    assert "gather" in hooked("other").new_text  # the loop only looks at it, as far as can be seen
