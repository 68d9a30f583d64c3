"""Conditions that are asked more than once in a round of a loop."""

from __future__ import annotations

import pytest

from accelify.knowledge import Knowledge
from accelify.obligations import Status, validate

KNOWLEDGE = Knowledge()
SCRIPT = """\
import numpy as np, sys, torch
from torch.utils.data import DataLoader
from accelify.runtime import Accelerator
accelerator = Accelerator()
model, loader = accelerator.prepare(torch.nn.Linear(2, 1), DataLoader(torch.load("d"), batch_size=8))
class Settings:
    pass
settings = Settings()
flag = settings.flag = len(sys.argv) > 1
total = 0.0
for x, y in loader:
    loss = ((model(x) - y) ** 2).mean()
    {lines}
    total += loss.item()
    accelerator.backward(loss)
total = accelerator.reduce(total, reduction="mean")
accelerator.print(total / len(loader))
"""
DRAW = "    weight = np.random.beta(1.0, 1.0)"


def named(*lines: str) -> list[str]:
    text = SCRIPT.format(lines="\n    ".join(lines))
    return [f"{one.sink}/{one.demand}" for one in validate(text, None, KNOWLEDGE).of(Status.NAMED)]


@pytest.mark.parametrize("rows", ["x, y", "2 * x, y", "x + x.mean(1, keepdim=True), 3 * y"])
def test_a_round_that_goes_its_own_way_gives_tuples_of_this_round(rows: str) -> None:
    mix = ("def mix(x, y):", "    if x.shape[0] < 2:", "        return x, y", f"    return {rows}")
    assert named(*mix, "x, y = mix(x, y)", "loss = ((model(x) - y) ** 2).mean()") == []


@pytest.mark.parametrize("flag", ["flag", "settings.flag", "not flag"])
def test_what_the_same_way_left_is_of_this_round(flag: str) -> None:
    assert named(f"if {flag}:", DRAW, f"loss = weight * loss if {flag} else loss") == []
    assert named(f"if {flag}:", DRAW, f"if {flag}:", "    loss = weight * loss") == []


@pytest.mark.parametrize(
    "lines",
    [
        ("if flag:", DRAW, "if not flag:", "    loss = weight * loss"),
        ("if flag:", DRAW, "if settings.flag:", "    loss = weight * loss"),
        (
            "flag = np.random.rand() > 0.5", "if flag:", DRAW,
            "flag = np.random.rand() > 0.5", "if flag:", "    loss = weight * loss",
        ),
        ("if flag:", "    loss = weight * loss", "if flag:", DRAW),
    ],
    ids=["the other way", "another condition", "one that the round changes", "before it is written"],
)  # fmt: skip
def test_what_another_way_leaves_is_of_the_round_before(lines: tuple[str, ...]) -> None:
    assert "terminal.write/content" in named(*lines)
