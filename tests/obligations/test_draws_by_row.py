"""What the engine says of random numbers that are drawn for the rows of each process's batch."""

from __future__ import annotations

import pytest

from accelify.knowledge import Knowledge
from accelify.obligations import Status, validate

KNOWLEDGE = Knowledge()
HEAD = """\
import random
import numpy as np
import torch
from torch.utils.data import DataLoader
from accelify.runtime import Accelerator
accelerator = Accelerator(cpu=True)
model = accelerator.prepare(torch.nn.Linear(2, 3))
loader = accelerator.prepare(DataLoader(torch.load("d"), batch_size=6))
rank = accelerator.process_index
"""


def named(drawn: str, before: str = "") -> list[str]:
    text = (
        f"{HEAD}{before}\nfor x, y in loader:\n"
        f"    loss = ((model(x) - y) ** 2).mean(1) * {drawn}\n    accelerator.backward(loss.mean())\n"
    )
    return [one.message for one in validate(text, None, KNOWLEDGE).of(Status.NAMED)]


ALIKE = {
    "NumPy's generator": ("torch.tensor(rng.uniform(0, 1, x.shape[0]))", "rng = np.random.default_rng(1)"),
    "NumPy's older one": ("torch.tensor(rng.normal(size=x.shape[:1]))", "rng = np.random.RandomState(1)"),
    "NumPy's stream": ("torch.tensor(np.random.rand(len(x)))", ""),
    "Python's generator": ("torch.tensor(rng.choices([0, 1], k=len(x)))", "rng = random.Random(0)"),
    "torch's generator": (
        "torch.rand(x.size(0), generator=rng)",
        "rng = torch.Generator()\nrng.manual_seed(0)",
    ),
}
OTHER = {
    "torch's stream": ("torch.rand(x.size(0))", ""),
    "the Accelerator's": ("torch.tensor(accelerator.numpy_random.rand(len(x)))", ""),
    "a seed by the rank": ("torch.tensor(rng.random(len(x)))", "rng = np.random.default_rng(1 + rank)"),
    "no seed": ("torch.tensor(rng.random(len(x)))", "rng = np.random.default_rng()"),
    "a stream with a seed by the rank": ("torch.tensor(np.random.rand(len(x)))", "np.random.seed(rank)"),
    "torch's generator by the rank": (
        "torch.rand(x.size(0), generator=rng)",
        "rng = torch.Generator().manual_seed(rank)",
    ),
    "one number for the batch": ("rng.beta(1, 1)", "rng = np.random.default_rng(1)"),
}


@pytest.mark.parametrize("kind", ALIKE)
def test_the_same_numbers_for_the_rows_of_every_process_are_named(kind: str) -> None:
    (message,) = named(*ALIKE[kind])
    assert "the same on every process, each time for other rows" in message


@pytest.mark.parametrize("kind", OTHER)
def test_other_numbers_on_each_process_are_not_named(kind: str) -> None:
    assert named(*OTHER[kind]) == []


def test_a_generator_without_a_seed_chooses_differently_on_each_process() -> None:
    text = "rng = np.random.default_rng({})\naccelerator.print(rng.permutation(9)[:3])\n"
    assert validate(HEAD + text.format(0), None, KNOWLEDGE).of(Status.NAMED) == []
    (one,) = validate(HEAD + text.format(""), None, KNOWLEDGE).of(Status.NAMED)
    assert "has no seed" in one.message


@pytest.mark.parametrize(("seed", "is_alike"), [("1", True), ("rank", False)])
def test_a_state_that_is_set_back_is_as_alike_as_it_was(seed: str, is_alike: bool) -> None:
    text = (
        f"torch.manual_seed({seed})\nstate = torch.get_rng_state()\ntorch.manual_seed(0)\n"
        "torch.set_rng_state(state)\naccelerator.print(torch.randn(1).item())\n"
    )
    assert (validate(HEAD + text, None, KNOWLEDGE).of(Status.NAMED) == []) is is_alike
