"""Losses, of batches that each process has and of its shares of batches: right, or named, in both."""

from __future__ import annotations

import pytest

from accelify.knowledge import Knowledge
from accelify.obligations import Obligation, Status, validate

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
