"""Losses averaged over a count within the batch."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelify.convert import convert_project
from accelify.source import Source
from tests.transforms.support import check_noop, codes, convert, frame

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


def test_weights_that_sum_up_to_the_same_everywhere_are_named_by_what_they_are_divided_by() -> None:
    loss = """
each = F.cross_entropy(model(x), y, reduction="none")
a, b = each * (y == 0), each * (y == 1)
weight = a / torch.sum(a).item() + b / b.sum().detach().item()
loss = torch.sum(weight * each) / torch.sum(weight).item()
"""
    (said,) = [f.message for f in convert(loss=loss).remaining if f.code == "ACC425"]
    assert said.endswith("its weights are divided by `torch.sum(a).item()` and `b.sum().detach().item()`")


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


WEIGHED = """
class Weighed(nn.Module):
    def __init__(self, scale=1.0, weight=None):
        super().__init__()
        self.scale, self.rest = scale, weight
        self.weight = weight

    def forward(self, scores, y):
        return F.cross_entropy(scores * self.scale, y, weight=self.weight)

criterion = Weighed({given})
"""


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("", False),
        ("2.0", False),
        ("weight=None", False),
        ("2.0, None", False),
        ("weight=torch.tensor([1.0, 2.0])", True),
        ("2.0, torch.tensor([1.0, 2.0])", True),
        ("**{'weight': torch.tensor([1.0, 2.0])}", True),
        (")\ncriterion.weight = torch.tensor([1.0, 2.0]", True),
    ],
)
def test_class_weights_that_nobody_gives(given: str, found: bool) -> None:
    conversion = convert(setup=WEIGHED.format(given=given), loss="loss = criterion(model(x), y)")
    assert ("ACC425" in codes(conversion)) is found


@pytest.mark.parametrize("later", ["", "criterion.weight = torch.tensor([1.0, 2.0])"])
def test_class_weights_that_the_script_sets_on_a_loss_of_another_module(tmp_path: Path, later: str) -> None:
    own, _, _ = WEIGHED.partition("criterion")
    (tmp_path / "weighed.py").write_text(f"import torch.nn as nn\nimport torch.nn.functional as F\n{own}")
    setup = f"from weighed import Weighed\ncriterion = Weighed()\n{later}"
    (tmp_path / "train.py").write_text(frame(setup=setup, loss="loss = criterion(model(x), y)"))
    conversion = convert_project(Source.read(tmp_path / "train.py"))[0]
    assert ("ACC425" in codes(conversion)) is bool(later)
