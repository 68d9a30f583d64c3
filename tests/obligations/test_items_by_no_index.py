"""Data whose items go by no index: drawn by a generator that each process has a copy of, they are the same on all."""

from __future__ import annotations

import pytest

from accelify.knowledge import Knowledge
from accelify.obligations import Status, validate

KNOWLEDGE = Knowledge()
TEXT = """\
import random
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset
from accelify.runtime import Accelerator
accelerator = Accelerator()
class Patches(Dataset):
    def __init__(self, images):
        self.images, self.generator = images, {generator}
    def __len__(self):
        return 100
    def __getitem__(self, number):
        at = {drawn}
        return self.images[{which}]
model = torch.nn.Linear(2, 1)
loader = DataLoader(Patches(torch.load("d")), batch_size=8)
model, loader = accelerator.prepare(model, loader)
for x in loader:
    accelerator.backward((model(x) ** 2).mean())
"""
NUMPY = "self.generator.integers(0, 9)"


def named(generator: str, drawn: str, which: str = "at") -> list[str]:
    checked = validate(TEXT.format(generator=generator, drawn=drawn, which=which), None, KNOWLEDGE)
    return [one.message for one in checked.of(Status.NAMED)]


@pytest.mark.parametrize(
    ("generator", "drawn"),
    [
        ("np.random.default_rng(0)", NUMPY),
        ("np.random.RandomState(5)", "self.generator.randint(0, 9)"),
        ("random.Random(1)", "self.generator.randrange(9)"),
    ],
)
def test_copies_of_a_generator(generator: str, drawn: str) -> None:
    (message,) = named(generator, drawn)
    assert "all processes train on the same samples: `__getitem__` draws its items by no index" in message


@pytest.mark.parametrize(
    ("generator", "drawn", "which"),
    [
        ("np.random.default_rng(0)", NUMPY, "number"),
        ("np.random.default_rng()", NUMPY, "at"),
        ("np.random.default_rng(accelerator.process_index)", NUMPY, "at"),
        ("None", "np.random.randint(0, 9)", "at"),
        ("None", "torch.randint(0, 9, (1,)).item()", "at"),
        ("np.random.default_rng(0)", f"{NUMPY} + random.randrange(9)", "at"),
    ],
    ids=[
        "by the index",
        "no seed",
        "a seed of its own",
        "NumPy's stream",
        "torch's stream",
        "a stream beside it",
    ],
)
def test_items_that_are_others_on_each_process(generator: str, drawn: str, which: str) -> None:
    assert not any("the same samples" in message for message in named(generator, drawn, which))
