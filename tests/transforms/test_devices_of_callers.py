"""A device that a caller outside of the converted files hands to the function that trains, or to its object."""

from __future__ import annotations

import pytest

from accelify.convert import convert_source
from accelify.source import Source
from tests.transforms.support import PATH

STEPS = """\
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x.to({device})), y.to({device}))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
FUNCTION = """\
import torch
from torch import nn


def train(loader, {parameter}):
    {first}
    model = nn.Linear(4, 2).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
""" + STEPS.format(device="device")
OBJECT = """\
import torch
from torch import nn


class Trainer:
    def __init__(self, device):
        self.device = device
        self.model = nn.Linear(4, 2)
        {move}
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def train(self, loader):
        for x, y in loader:
            loss = nn.functional.cross_entropy(self.model(x.to(self.device)), y.to(self.device))
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
"""


def converted(text: str) -> str:
    conversion = convert_source(Source.from_text(text, PATH))
    assert conversion.status == "converted", conversion.reason
    return conversion.new_text


@pytest.mark.parametrize(
    ("parameter", "first", "called"),
    [
        # Chosen by the function itself.
        ("device", 'device = torch.device("cuda")', ""),
        # Told by a caller that is converted as well.
        ("device", "pass", '\n\ntrain([], torch.device("cuda"))\n'),
    ],
)
def test_a_device_that_is_chosen_here_is_no_caller_s(parameter: str, first: str, called: str) -> None:
    text = converted(FUNCTION.format(parameter=parameter, first=first) + called)
    assert "Accelerator()" in text
    assert "str(device)" not in text


def test_a_function_that_trains_nothing_is_asked_for_no_device() -> None:
    text = converted(
        FUNCTION.format(parameter="batches", first='device = torch.device("cuda")')
        + "\n\ndef predict(net, x, device):\n    return net.to(device)(x.to(device))\n"
    )
    assert "Accelerator()" in text


def test_a_function_goes_on_with_the_device_of_the_accelerator() -> None:
    """Not with the caller's, which can be one GPU for all processes: noise is made there, batches are moved there."""
    text = converted(FUNCTION.format(parameter="device", first="noise = torch.randn(4, device=device)"))
    assert (
        '    accelerator = Accelerator(cpu=str(device) == "cpu")\n'
        "    device = accelerator.device\n"
        "    noise = torch.randn(4, device=device)\n"
        "    model = nn.Linear(4, 2)\n"
    ) in text


@pytest.mark.parametrize("move", ["self.model.to(device)", "self.model = self.model.to(self.device)"])
def test_so_does_an_object_that_trains(move: str) -> None:
    text = converted(OBJECT.format(move=move))
    assert (
        '        self.accelerator = Accelerator(cpu=str(device) == "cpu")\n'
        "        device = self.accelerator.device\n"
        "        self.device = device\n"
    ) in text
