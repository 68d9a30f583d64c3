"""Summed losses whose weights are divided by a count of the batch."""

from __future__ import annotations

import pytest

from tests.transforms.support import convert, place_of

BALANCED = """
def balanced(score, target):
    w = torch.zeros_like(target)
    pos, neg = target == 1, target == 0
    n_pos = torch.sum(pos).float()
    n_neg = torch.sum(neg).float()
    {weights}
    {result}
"""
SUMMED = "return F.binary_cross_entropy_with_logits(score, target, w, reduction='sum')"
EACH = "each = F.binary_cross_entropy_with_logits(score, target, reduction='none')\n    "
LOSS = "loss = balanced(model(x)[:, 0], y.float())"


def backward(setup: str) -> str:
    return place_of(convert(setup=setup, loss=LOSS).new_text, "backward")


@pytest.mark.parametrize(
    "weights",
    [
        "w[pos] = 1 / pos.sum().float(); w[neg] = 1 / neg.sum().float(); w /= w.sum()",
        "w[pos] = 0.5 / pos.sum(); w[neg] = 0.5 / neg.sum()",
        "w[pos] = 1 / n_pos; w[neg] = 1 / n_neg * 3",
        "w = torch.where(pos, 1 / n_pos, 1 / n_neg)",
        "w = pos.float() / pos.sum() + neg.float() / neg.sum()",
        "w = w / w.sum()",
        "w = target.div(target.sum() + 1e-6)",
    ],
)
@pytest.mark.parametrize(
    "result",
    [SUMMED, f"{EACH}return (each * w).sum()", f"{EACH}return torch.sum(w * each)"],
)
def test_weights_that_are_divided_by_their_count_make_a_sum_a_mean(weights: str, result: str) -> None:
    assert backward(BALANCED.format(weights=weights, result=result)) == "accelerator.backward(loss)"


@pytest.mark.parametrize(
    "weights",
    [
        "w[pos] = n_neg / (n_pos + n_neg); w[neg] = 1.1 * n_pos / (n_pos + n_neg)",
        "beta = n_neg / (n_pos + n_neg); w[pos] = beta; w[neg] = 1 - beta",
        "w[pos] = 1 / 3",
        "w = target / target.max()",
        "w = target[:, None] / target[:, None].sum(1)",
        "for i in range(len(target)):\n        w[i] = 1 / target[i].sum()",
        "w = torch.ones_like(target) / 8 + 1 / n_pos",
    ],
)
def test_weights_that_are_shares_leave_it_a_sum(weights: str) -> None:
    text = backward(BALANCED.format(weights=weights, result=SUMMED))
    assert text == 'accelerator.backward(loss, reduction="sum")'


def test_weights_by_the_size_of_the_batch_are_the_same_everywhere() -> None:
    text = backward(BALANCED.format(weights="w = torch.ones_like(w) / w.numel()", result=SUMMED))
    assert text == "accelerator.backward(loss)"


def test_the_weight_of_a_criterion_that_is_made_for_each_batch() -> None:
    result = (
        "criterion = nn.BCEWithLogitsLoss(weight=w, reduction='sum')\n    return criterion(score, target)"
    )
    for weights, sums in (("w[pos] = 1 / n_pos; w[neg] = 1 / n_neg", False), ("w[pos] = 2", True)):
        text = backward(BALANCED.format(weights=weights, result=result))
        assert ('reduction="sum"' in text) is sums
