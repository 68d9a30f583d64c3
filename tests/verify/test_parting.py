"""Where two runs part: the sentence names the first thing that is wrong, and nothing that is right."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from accelify.verify.session import Report
from tests.verify import scripts

pytestmark = pytest.mark.distributed

VerifyPair = Callable[..., Report]
WINDOWS = """\
for epoch in range(10):
    for number, (x, y) in enumerate(loader):
        loss = F.mse_loss(model(x), y)
        (loss / 2).backward()
        if (number + 1) % 2 == 0:
            opt.step()
            opt.zero_grad()
"""
ACCUMULATED = """\
for epoch in range(10):
    for x, y in loader:
        with accelerator.accumulate(model):
            loss = F.mse_loss(model(x), y)
            accelerator.backward(loss)
            opt.step()
            opt.zero_grad()
"""


def accumulated(loop: str = ACCUMULATED, **more: str) -> str:
    """A conversion that accumulates over two batches."""
    text = scripts.converted(loop=loop, **more)
    return text.replace("Accelerator(", "Accelerator(gradient_accumulation_steps=2, ")


def sentences(report: Report) -> list[str]:
    """What is said of losses and weights."""
    checks = [check for comparison in report.comparisons for check in comparison.checks]
    return [check.sentence for check in checks if check.sentence and check.aspect in ("losses", "weights")]


def test_gradients_in_an_open_window_are_not_reduced_yet(verify_pair: VerifyPair) -> None:
    """A loss that is a little off, by less than outputs may be."""
    loop = ACCUMULATED.replace("backward(loss)", "backward(loss * 1.00005)")
    found = sentences(verify_pair(scripts.plain(loop=WINDOWS), accumulated(loop), steps=4))
    assert any(
        "at call 1 of backward the modules' outputs are the original's, but the loss" in one for one in found
    )
    assert not any("is not reduced over them" in one for one in found)


def test_gradients_at_the_end_of_a_window_that_are_not_reduced_are_named(verify_pair: VerifyPair) -> None:
    loop = WINDOWS.replace("(loss / 2).backward()", "accelerator.backward(loss / 2)")
    copy = scripts.converted(loop=loop, prepare="loader = accelerator.prepare(loader)\n")
    found = sentences(verify_pair(scripts.plain(loop=WINDOWS), copy, steps=4))
    assert any(
        "at call 2 of backward the gradient of" in one and "not reduced over them" in one for one in found
    )
