"""A wish for the CPU that a parameter of another class tells: `Net(use_cuda=False)`."""

from __future__ import annotations

import pytest

from accelify.conversion import Conversion
from accelify.convert import convert_source
from accelify.source import Source
from tests.transforms.support import PATH

TEXT = """\
import torch
from torch import nn
from torch.utils.data import DataLoader


class Runner:
    def __init__(self, model, PARAMETER):
        if use_cuda and torch.cuda.is_available():
            self.device = torch.device("cuda")
        else:
            self.device = torch.device("cpu")
        self.model = model.to(self.device)

    def fit(self, loader, optimizer):
        for x, y in loader:
            loss = nn.functional.cross_entropy(self.model(x.to(self.device)), y.to(self.device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


loader = DataLoader(rows, batch_size=4)
model = nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
MADE
"""
ONE = "Runner(model{}).fit(loader, optimizer)"


def converted(made: str, parameter: str = "use_cuda=True") -> Conversion:
    text = TEXT.replace("PARAMETER", parameter).replace("MADE", made)
    found = convert_source(Source.from_text(text, PATH))
    assert found.status == "converted", found.reason
    return found


def untold(found: Conversion) -> bool:
    return any("is not known in every run" in one.message for one in found.remaining)


@pytest.mark.parametrize(("given", "parameter"), [(", use_cuda=True", "use_cuda"), ("", "use_cuda=True")])
def test_where_none_wishes_it_nothing_is_said(given: str, parameter: str) -> None:
    found = converted(ONE.format(given), parameter)
    assert "accelerator = Accelerator()\n" in found.new_text
    assert not untold(found)


@pytest.mark.parametrize(
    "made",
    [
        f"{ONE.format(', use_cuda=False')}\n{ONE.format(', use_cuda=True')}",
        ONE.format(", use_cuda=False"),
        ONE.format(", use_cuda=len(rows) > 4"),
        ONE.format(", *options"),
    ],
    ids=["either", "the CPU", "worked out", "spread"],
)
def test_what_is_open_is_said(made: str) -> None:
    found = converted(made)
    assert "accelerator = Accelerator()\n" in found.new_text
    assert untold(found)
