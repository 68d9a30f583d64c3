"""Losses, of batches that each process has and of its shares of batches: right, or named, in both."""

from __future__ import annotations

import pytest

from accelify.conversion import ConvertOptions
from accelify.convert import convert_source
from accelify.knowledge import Knowledge
from accelify.obligations import Obligation, Status, validate
from accelify.source import Source

KNOWLEDGE = Knowledge()
SCRIPT = """\
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader
from accelify.runtime import Accelerator
accelerator = Accelerator(split_batches={split})
model, loader = accelerator.prepare(torch.nn.Linear(4, 1), DataLoader(torch.load("d"), batch_size=8))
centers = torch.nn.Parameter(torch.zeros(3, 1))
positive = sum(y.sum() for _, y in loader)
rows = torch.nn.MSELoss(reduction="none")
for x, y in loader:
    p = model(x)
    {loss}
    accelerator.backward(loss)
"""


def losses(loss: str, split: bool) -> list[Obligation]:
    found = validate(SCRIPT.format(loss=loss, split=split), None, KNOWLEDGE)
    return [one for one in found.of(Status.NAMED) if one.demand == "loss"]


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize(
    "loss",
    [
        "loss = rows(p, y).mean()",
        "loss = F.mse_loss(p, y) + 0.1 * ((p - centers[y.long()]) ** 2).sum(1).mean()",
        "loss = sum(rows(a, b).mean() for a, b in zip(p, y)) / len(y)",
        "loss = F.mse_loss(p, y) + 0.01 * sum((w ** 2).sum() for w in model.parameters())",
    ],
)
def test_a_mean_of_something_of_each_row_is_right(loss: str, split: bool) -> None:
    assert losses(loss, split) == []


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize(
    "loss",
    [
        "loss = F.cross_entropy(p @ p.t(), torch.arange(len(p)))",
        "loss = rows(p, y).view(-1).topk(len(p) // 2).values.mean()",
        "loss = torch.topk(rows(p, y).view(-1), k=int(0.7 * p.size(0)))[0].mean()",
        "loss = F.mse_loss(p, y) / y.var()",
        "loss = F.binary_cross_entropy_with_logits(p, y, pos_weight=positive)",
        "loss = torch.nn.BCEWithLogitsLoss(pos_weight=positive)(p, y)",
    ],
)
def test_anything_else_is_named(loss: str, split: bool) -> None:
    assert len(losses(loss, split)) == 1


LISTED = """\
import torch
from torch.utils.data import DataLoader
model = torch.nn.Linear(4, 3)
loader = DataLoader(torch.load("d"), batch_size=8)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for x, y in loader:
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
right, wrong = 0, []
for x, y in loader:
    p = model(x).argmax(-1); right += (p == y).sum().item()
    wrong += (p != y).sum(1).tolist()
print(right, sum(wrong) / len(wrong))
"""


def test_a_list_that_gets_longer_is_no_total() -> None:
    text = convert_source(Source.from_text(LISTED), ConvertOptions("total")).new_text
    assert text is not None
    assert 'right = accelerator.reduce(right, reduction="sum")' in text
    together = 'right, wrong = accelerator.reduce((right, wrong), reduction="sum")'
    for written in (text, text.replace('right = accelerator.reduce(right, reduction="sum")', together)):
        named = validate(written, None, KNOWLEDGE).of(Status.NAMED)
        assert [one.demand for one in named] == ["content"]


FIGURES = """\
import numpy as np
import torch
from sklearn.metrics import balanced_accuracy_score, r2_score
from torch.utils.data import DataLoader
from accelify.runtime import Accelerator
accelerator = Accelerator(split_batches={split})
model, loader = accelerator.prepare(torch.nn.Linear(4, 1), DataLoader(torch.load("d"), batch_size=8))
found = []
for x, y in loader:
    p = model(x)
    found.append({figure})
found = accelerator.reduce(found, reduction="mean")
accelerator.print(np.mean(found))
"""


@pytest.mark.parametrize(
    ("figure", "is_mean"),
    [
        ("torch.nn.functional.mse_loss(p, y).item()", True),
        ("balanced_accuracy_score(y.cpu(), p.cpu())", False),
        ("r2_score(y.cpu().numpy(), p.detach().cpu().numpy())", False),
        ("p.std().item()", False),
        ("p.median().item()", False),
    ],
)
def test_the_mean_over_shares_is_that_of_the_batch_where_it_is_a_mean_of_rows(figure, is_mean):
    ways = [validate(FIGURES.format(split=split, figure=figure), None, KNOWLEDGE) for split in (False, True)]
    whole, shares = ([one.sink for one in way.of(Status.NAMED) if one.demand == "content"] for way in ways)
    assert whole == []
    assert shares == [] if is_mean else shares == ["terminal.write"]
