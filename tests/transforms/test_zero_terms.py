"""Terms of a loss that are nothing."""

from __future__ import annotations

import pytest

from tests.transforms.support import codes, convert, place_of


def backward(setup: str) -> tuple[str, set[str]]:
    conversion = convert(setup=setup, loss="loss = balanced(model(x)[:, 0], y.float())")
    return place_of(conversion.new_text, "backward"), codes(conversion)


@pytest.mark.parametrize(
    "nothing",
    [
        "score.sum() * 0.0",
        "0 * score.sum()",
        "torch.sum(score * 0.0)",
        "score.new_zeros(1).sum()",
        "score.sum().mul(0)",
    ],
)
def test_a_term_that_is_nothing_is_neither_a_sum_nor_a_mean(nothing: str) -> None:
    empty = f"def balanced(score, target):\n    if target.sum() == 0:\n        return {nothing}\n"
    empty += "    return F.mse_loss(score, target"
    for rest, text in (
        (")", "accelerator.backward(loss)"),
        (", reduction='sum')", 'accelerator.backward(loss, reduction="sum")'),
    ):
        assert backward(empty + rest)[0] == text
    term = f"def balanced(score, target):\n    return F.mse_loss(score, target) + {nothing}"
    assert backward(term)[0] == "accelerator.backward(loss)"
    assert "ACC406" not in backward(term)[1] | backward(empty + ")")[1]
