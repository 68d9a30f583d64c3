"""A mean over rounds that counts all ranks alike: why it is not the original's, by what the ranks' batches were."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from accelify.verify.compare.verdict import Check, Verdict
from accelify.verify.session import Report
from tests.verify import scripts

pytestmark = pytest.mark.distributed

VerifyPair = Callable[..., Report]
START = scripts.LOOP.replace("    for x", "    total = 0.0\n    for x") + "        total += loss.item()\n"
END = "    print(f'epoch {epoch} {total / len(loader):.6f}')\n"
REDUCED = (
    START
    + "    total = accelerator.reduce(total, reduction='mean')\n"
    + END.replace("print(", "accelerator.print(")
)
TOTAL = ", or convert with --batch-size total"


def printed(verify_pair: VerifyPair, before: str, after: str) -> Check:
    report = verify_pair(before, after, steps=12)
    (check,) = [check for check in report.comparisons[1].checks if check.aspect == "printed"]
    return check


def per_process(text: str) -> str:
    return text.replace("split_batches=True", "")


def test_an_uneven_last_batch_of_each_process_is_named_with_the_way_out(verify_pair: VerifyPair) -> None:
    rows = "torch.randn(51, 5)"
    before, after = scripts.plain(loop=START + END), per_process(scripts.converted(loop=REDUCED))
    before, after = (text.replace("torch.randn(44, 5)", rows) for text in (before, after))
    check = printed(verify_pair, before, after)
    assert check.verdict is Verdict.NOT_COMPARABLE
    assert "not of one size" in check.sentence
    assert check.sentence.endswith(TOTAL)


def test_who_has_converted_with_total_is_not_advised_to(verify_pair: VerifyPair) -> None:
    """Eleven rows on two processes."""
    check = printed(verify_pair, scripts.plain(loop=START + END), scripts.converted(loop=REDUCED))
    assert check.verdict is Verdict.NOT_COMPARABLE
    assert check.sentence.endswith("weigh each by its samples")


def test_where_all_batches_are_of_one_size_a_figure_of_other_losses_is_different(
    verify_pair: VerifyPair,
) -> None:
    before, after = scripts.plain(loop=START + END), per_process(scripts.converted(loop=REDUCED))
    loss = "loss = F.mse_loss(model(x), y)"
    before, after = (text.replace(loss, "loss = (model(x) - y).norm()") for text in (before, after))
    check = printed(verify_pair, before, after)
    assert check.verdict is Verdict.DIFFERENT
    assert "alike" not in check.sentence


def test_losses_that_backward_weighs_are_named(verify_pair: VerifyPair) -> None:
    loss = "loss = F.mse_loss(model(x), y)"
    mean = "loss = (F.mse_loss(model(x), y, reduction='none') * (y > 0)).sum() / (y > 0).sum()"
    before, after = scripts.plain(loop=START + END), per_process(scripts.converted(loop=REDUCED))
    before, after = (text.replace(loss, mean) for text in (before, after))
    check = printed(
        verify_pair, before, after.replace("backward(loss)", "backward(loss, weight=(y > 0).sum())")
    )
    assert check.verdict is Verdict.NOT_COMPARABLE
    assert "`weight=`" in check.sentence
