"""Terms of a loss that are made of weights, and of what was kept of them, beside a mean over the batch."""

from __future__ import annotations

import pytest

from tests.transforms.support import codes, convert

BEFORE = """
before = {n: p.detach().clone() for n, p in model.named_parameters()}
fisher = {n: torch.zeros_like(p) for n, p in model.named_parameters()}
mask = torch.ones_like(model.weight)
last = mask
"""
MEAN = "loss = F.cross_entropy(model(x), y)\n"
WEIGHTS = "for n, p in model.named_parameters():\n    "


@pytest.mark.parametrize(
    "loss",
    [
        "loss = loss + model.weight.pow(2).sum()",
        "loss = loss + (model.weight * mask).pow(2).sum()",
        "loss = loss + 0.1 * torch.sum(mask * model.weight)",
        "loss = loss + (model.weight - before['weight']).pow(2).sum()",
        f"{WEIGHTS}loss = loss + (fisher[n] * (p - before[n]) ** 2).sum()",
        f"{WEIGHTS}loss += (fisher[n] * (p - before[n]) ** 2).sum()",
    ],
)
def test_what_is_made_of_weights_alone_is_no_sum_over_the_batch(loss: str) -> None:
    found = convert(ready=BEFORE, loss=MEAN + loss)
    assert "ACC406" not in codes(found)
    assert "accelerator.backward(loss)\n" in found.new_text


@pytest.mark.parametrize(
    "loss",
    [
        "loss = loss + (model(x) * mask[0, 0]).sum()",
        "loss = loss + (model.weight[0] * x).sum()",
        "last = x\nloss = loss + (model.weight[0] * last).sum()",
        f"{WEIGHTS}last = x\n    loss = loss + (p.mean() * last).sum()",
    ],
)
def test_what_is_made_of_the_batch_as_well_is_one(loss: str) -> None:
    assert "ACC406" in codes(convert(ready=BEFORE, loss=MEAN + loss))
