"""Ratios of sums over a batch whose channels were brought to the front, as a Dice loss for each class takes them."""

from __future__ import annotations

import pytest

from tests.transforms.support import convert

SETUP = """
def flatten(x):
    channels = x.size(1)
    {order}
    {moved}
    return {rows}

class Dice(nn.Module):
    def forward(self, p, y):
        p = flatten(torch.sigmoid(p))
        y = flatten(y)
        both = {both}
        each = {each}
        return 1 - torch.mean(2 * both / each.clamp(min=1e-5))

dice = Dice()
"""
PLAIN = {
    "order": "order = (1, 0) + tuple(range(2, x.dim()))",
    "moved": "moved = x.permute(order)",
    "rows": "moved.contiguous().view(channels, -1)",
    "both": "(p * y).sum(-1)",
    "each": "(p + y).sum(-1)",
}


def messages(**parts: str) -> list[str]:
    setup = SETUP.format(**(PLAIN | parts))
    conversion = convert(setup=setup, loss="loss = dice(model(x), F.one_hot(y, 2).float())\n")
    return [f.message for f in conversion.remaining if f.code == "ACC425"]


@pytest.mark.parametrize(
    "parts",
    [
        {"rows": "x.contiguous().view(len(x), -1)"},
        {"order": "order = (0, 1) + tuple(range(2, x.dim()))"},
        {"moved": "moved = x.permute(0, 2, 3, 1)"},
        {"rows": "moved.reshape(channels, x.size(0), -1)"},
    ],
)
def test_sums_of_each_sample(parts: dict[str, str]) -> None:
    assert not messages(**parts)


@pytest.mark.parametrize(
    "parts",
    [
        {},
        {"moved": "moved = x.permute(1, 0, 2, 3)"},
        {"order": "order = [1, 0, 2]", "rows": "x.permute(order).reshape(channels, -1)"},
        {"both": "torch.sum(p * y, dim=1)", "each": "torch.sum(p * p, dim=1) + y.pow(2).sum(dim=-1)"},
    ],
)
def test_sums_of_each_class_over_all_samples(parts: dict[str, str]) -> None:
    (message,) = messages(**parts)
    assert "is a ratio of sums over the batch" in message
