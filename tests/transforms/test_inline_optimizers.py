"""Optimizers that are made in the call that takes them."""

from __future__ import annotations

import pytest

from accelify.conversion import Conversion
from accelify.convert import convert_source
from accelify.source import Source
from tests.transforms.support import PATH

SCRIPT = """\
from dataclasses import dataclass
import torch
from torch import nn
from torch.utils.data import DataLoader


@dataclass(frozen=True)
class State:
    model: nn.Module
    optimizer: torch.optim.Optimizer


def fit(model, optimizer, loader):
    for x in loader:
        optimizer.zero_grad()
        model(x).mean().backward()
        optimizer.step()


model = {model}
loader = DataLoader(list(torch.randn(8, 3)), batch_size=2)
{run}
"""
SGD = "torch.optim.SGD(model.parameters(), lr=0.1)"
STEP = "for x in loader:\n    {0}.zero_grad()\n    model(x).mean().backward()\n    {0}.step()"


def conversion(run: str, model: str = "nn.Linear(3, 1)") -> Conversion:
    return convert_source(Source.from_text(SCRIPT.format(run=run, model=model), PATH))


@pytest.mark.parametrize(
    "run",
    [
        f"fit(model, {SGD}, loader)",
        f"fit(model, loader=loader, optimizer={SGD})",
        f"state = State(model=model, optimizer={SGD})\n" + STEP.format("state.optimizer"),
        f"state = dict(model=model, optimizer={SGD})\n" + STEP.format('state["optimizer"]'),
        f'state = {{"model": model, "optimizer": {SGD}}}\n' + STEP.format('state["optimizer"]'),
    ],
)
def test_they_are_prepared_there_behind_their_model(run: str) -> None:
    found = conversion(run)
    assert found.status == "converted", found.reason
    prepared = found.new_text.index("accelerator.prepare(model")
    assert prepared < found.new_text.index(f"accelerator.prepare({SGD})")
    again = convert_source(Source.from_text(found.new_text, PATH))
    assert again.new_text == found.new_text


@pytest.mark.parametrize(
    "run",
    [
        "fit(nn.Linear(3, 1), torch.optim.SGD(nn.Linear(3, 1).parameters(), lr=0.1), loader)",
        f"makes = [lambda: fit(model, {SGD}, loader)]\nmakes[0]()",
    ],
)
def test_others_are_left_to_a_person(run: str) -> None:
    assert conversion(run).status == "refused"


def test_one_with_a_name_is_prepared_with_the_rest() -> None:
    found = conversion(f"optimizer = {SGD}\nfit(model, optimizer, loader)")
    assert "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)\n" in found.new_text
