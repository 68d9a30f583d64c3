"""What the engine says of means over batches that are padded to their longest rows."""

from __future__ import annotations

import pytest

from accelify.knowledge import Knowledge
from accelify.obligations import Status, validate

KNOWLEDGE = Knowledge()
HEAD = """\
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader
from accelify.runtime import Accelerator
accelerator = Accelerator(split_batches={split})
model = accelerator.prepare(nn.Linear(2, 3))
criterion, ctc = nn.CrossEntropyLoss(), nn.CTCLoss()
def longest(rows):
    most = max(len(row) for row in rows)
    return torch.stack([F.pad(row, (0, most - len(row))) for row in rows])
def both(rows):
    inputs, targets = [row[0] for row in rows], [row[1] for row in rows]
    sizes = torch.tensor([len(row) for row in inputs])
    inputs = pad_sequence(inputs, batch_first=True)
    return inputs, pad_sequence(targets, batch_first=True), sizes
def labelled(rows):
    return pad_sequence([row[0] for row in rows], batch_first=True), torch.tensor([row[1] for row in rows])
def written(rows):
    out = torch.zeros(len(rows), max(map(len, rows)))
    for i, row in enumerate(rows):
        out[i, : len(row)] = row
    return out
def room(rows):
    out = torch.zeros(len(rows), 99)
    for i, row in enumerate(rows):
        out[i, : len(row)] = row
    return out
def fixed(rows):
    return torch.stack([F.pad(row, (0, 99 - len(row))) for row in rows])
"""


def named(collate: str, batch: str, loss: str, split: bool) -> list[str]:
    loader = f"accelerator.prepare(DataLoader(torch.load('d'), batch_size=6, collate_fn={collate}))"
    text = f"{HEAD.format(split=split)}for {batch} in {loader}:\n    accelerator.backward({loss})\n"
    return [one.message for one in validate(text, None, KNOWLEDGE).of(Status.NAMED)]


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize(
    ("collate", "batch", "loss"),
    [
        ("longest", "x", "F.mse_loss(model(x), x)"),
        ("written", "x", "F.mse_loss(model(x), x)"),
        ("written", "x", "F.nll_loss(model(x).view(-1, 9), x.reshape(-1), reduction='none').mean()"),
        ("longest", "x", "((model(x) - x) ** 2).mean()"),
        ("lambda rows: pad_sequence(rows, batch_first=True)", "x", "(model(x) - x).abs().mean()"),
        ("both", "x, y, n", "criterion(model(x).view(-1, 9), y[:, 1:].reshape(-1))"),
    ],
)
def test_a_mean_over_padded_rows_is_named(collate: str, batch: str, loss: str, split: bool) -> None:
    (message,) = named(collate, batch, loss, split)
    assert "padded to the longest of each process's batch" in message


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize(
    ("collate", "batch", "loss"),
    [
        ("fixed", "x", "F.mse_loss(model(x), x)"),
        ("room", "x", "F.mse_loss(model(x), x)"),
        ("None", "x", "F.mse_loss(model(x), x)"),
        ("longest", "x", "F.mse_loss(model(x), x, reduction='none').sum(1).mean()"),
        ("labelled", "x, y", "F.cross_entropy(model(x), y)"),
        ("both", "x, y, n", "ctc(model(x), y, n, n)"),
        ("both", "x, y, n", "model(x)[:, 0].mean()"),
    ],
)
def test_a_mean_of_something_of_each_row_is_not(collate: str, batch: str, loss: str, split: bool) -> None:
    assert named(collate, batch, loss, split) == []
