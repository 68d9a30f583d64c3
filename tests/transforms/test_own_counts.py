"""Losses averaged over a count within the batch."""

from __future__ import annotations

import pytest

from tests.transforms.support import check_noop, codes, convert

EACH = 'each = F.cross_entropy(model(x), y, reduction="none")\n'


@pytest.mark.parametrize(
    ("setup", "loss"),
    [
        ("", f"{EACH}positive = y != 0\nloss = each[positive].sum() / positive.sum().float()"),
        ("", f"{EACH}positive = y != 0\nN = positive.data.sum()\nloss = (each * positive).sum()\nloss /= N"),
        ("", f"{EACH}loss = torch.sum(each * (y > 0)) / max(1, torch.sum(y > 0))"),
        ("", f"{EACH}loss = each[y > 0].mean()"),
        ("", "loss = F.cross_entropy(model(x), y, ignore_index=0)"),
        ("criterion = nn.CrossEntropyLoss(ignore_index=0)", "loss = criterion(model(x), y)"),
        ("criterion = nn.CrossEntropyLoss(torch.tensor([1.0, 2.0]))", "loss = criterion(model(x), y)"),
        (
            "class Scored(nn.Module):\n"
            "    def forward(self, scores, y):\n"
            "        count = (y != 0).sum()\n"
            '        return F.cross_entropy(scores, y, reduction="none")[y != 0].sum() / count.float()\n'
            "criterion = Scored()",
            "loss = criterion(model(x), y)",
        ),
        (
            "class BoxLoss(nn.Module):\n"
            "    def forward(self, scores, y):\n"
            "        positive = y > 0\n"
            "        first = F.smooth_l1_loss(scores[positive][:, 0], y[positive].float(), reduction='sum')\n"
            "        second = F.cross_entropy(scores, y, reduction='sum')\n"
            "        N = max(positive.long().sum().float(), 1)\n"
            "        first /= N\n"
            "        second /= N\n"
            "        return first, second\n"
            "criterion = BoxLoss()",
            "boxes, kinds = criterion(model(x), y)\nloss = 2 * boxes + kinds",
        ),
    ],
)
def test_losses_that_each_process_averages_over_a_count_of_its_own(setup: str, loss: str) -> None:
    conversion = convert(setup=setup, loss=loss)
    assert [f.code for f in conversion.remaining].count("ACC425") == 1
    said = next(f.message for f in conversion.remaining if f.code == "ACC425")
    assert "accelerator.backward(loss, weight=...)" in said


@pytest.mark.parametrize(
    "loss",
    [
        "loss = F.cross_entropy(model(x), y)",
        f"{EACH}loss = each.sum() / x.size(0)",
        f"{EACH}loss = each.sum() / len(y)",
        f"{EACH}shares = torch.tensor([1.0, 3.0])\nloss = each.mean() / shares.sum()",
        f"{EACH}shares = torch.tensor([1.0, 3.0])\nloss = each.sum() / (8 * shares.sum())",
        "hits = (model(x).softmax(1)[:, 0] * y).sum()\n"
        "loss = 1 - 2 * hits / (y.sum() + model(x).softmax(1)[:, 0].sum())",
        "loss = F.cross_entropy(model(x), y, weight=None)",
    ],
)
def test_other_losses(loss: str) -> None:
    assert "ACC425" not in codes(convert(loss=loss))


def test_a_backward_that_is_weighed_already() -> None:
    check_noop("loss", "loss = F.cross_entropy(model(x), y)", "ACC425")
