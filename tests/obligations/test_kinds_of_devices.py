"""What the engine says of what goes by the kind of this process's device, and by its number."""

from __future__ import annotations

import pytest

from accelify.knowledge import Knowledge
from accelify.obligations import Status, validate

KNOWLEDGE = Knowledge()
TEXT = """\
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader
from accelify.runtime import Accelerator
accelerator = Accelerator()
def place_of(name):
    if name != "cpu" and torch.cuda.is_available():
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")
place = place_of("auto")
loader = accelerator.prepare(DataLoader(torch.load("d", map_location=place), batch_size=6))
model = accelerator.prepare(nn.Linear(2, 3))
weights = torch.ones(3, device=place)
"""


def named(text: str) -> list[str]:
    return [one.message for one in validate(TEXT + text, None, KNOWLEDGE).of(Status.NAMED)]


@pytest.mark.parametrize(
    "move", ["x.to(place)", "x.to(device=place)", "x.to(place) * weights", "x.cuda(place)"]
)
def test_a_tensor_is_the_same_wherever_it_lies(move: str) -> None:
    assert named(f"for x, y in loader: accelerator.backward(F.mse_loss(model({move}), y))\n") == []


def test_the_kind_of_a_device_is_that_of_all_ranks() -> None:
    assert named('if place.type != "cuda": accelerator.print("slow", place.type)\n') == []


@pytest.mark.parametrize("number", ["place.index", "torch.cuda.current_device()"])
def test_the_number_of_a_device_is_that_of_one_rank(number: str) -> None:
    assert len(named(f"if {number} > 0: accelerator.print(1)\n")) == 1


@pytest.mark.parametrize(("number", "is_named"), [("-1", False), ("0", True)])
def test_a_number_that_chooses_no_gpu(number: str, is_named: bool) -> None:
    assert bool(named(f"with torch.cuda.device({number}):\n    model.train()\n")) is is_named
