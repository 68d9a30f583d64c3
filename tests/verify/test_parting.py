"""Where two runs part: the sentence names the first thing that is wrong, and nothing that is right."""

from __future__ import annotations

import re
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
        "at call 2 of backward, the one before that loss, the gradient of" in one
        and "not reduced over them" in one
        for one in found
    )


MASKED = "loss = (F.mse_loss(model(x), y, reduction='none') * (y > 0)).sum() / (y > 0).sum()"


def test_a_loss_weighed_under_accumulation_is_compared_as_the_scripts(verify_pair: VerifyPair) -> None:
    """The update is the mean over the whole window, another one than that of the means over its batches."""
    before, after = (
        loop.replace("loss = F.mse_loss(model(x), y)", MASKED) for loop in (WINDOWS, ACCUMULATED)
    )
    copy = accumulated(after.replace("backward(loss)", "backward(loss, weight=(y > 0).sum())"))
    report = verify_pair(scripts.plain(loop=before), copy, steps=4)
    assert any(
        "loss 3: " in one and "at call 2 of backward, the one before that loss, the" in one
        for one in sentences(report)
    )
    assert report.original is not None
    for comparison in report.comparisons:
        assert comparison.run.losses[:2] == pytest.approx(report.original.losses[:2], rel=1e-5)
    found = sentences(report)
    assert any(": at call 2 of backward" in one and "is another one" in one for one in found)
    assert not any("times the original's" in one for one in found)


def test_the_losses_of_the_ranks_and_their_mean_are_on_one_scale(verify_pair: VerifyPair) -> None:
    before = WINDOWS.replace("loss = F.mse_loss(model(x), y)", MASKED)
    report = verify_pair(scripts.plain(loop=before), None, steps=4, batch_size="total")
    values = [one.values for one in report.settled if one.demand.demand == "loss"]
    assert values, report.settled
    first, second, together = (
        float(word) for word in re.findall(r"(?:rank \d|together) ([\d.e-]+)", values[0])
    )
    assert together == pytest.approx((first + second) / 2, rel=1e-4)


def test_rows_in_another_order_are_no_difference(verify_pair: VerifyPair) -> None:
    """Two views of each row, one after the other: each rank has both views of its own rows."""
    loop = scripts.LOOP.replace(
        "loss = F.mse_loss(model(x), y)", "loss = Spread()(model(torch.cat([x, -x])))"
    )
    spread = (
        "class Spread(nn.Module):\n    def forward(self, z):\n        return (z @ z.t()).square().mean()\n"
    )
    found = sentences(
        verify_pair(scripts.plain(loop=spread + loop), scripts.converted(loop=spread + loop), steps=4)
    )
    assert any("the output of `Spread` (Spread) is the first that differs" in one for one in found), found
