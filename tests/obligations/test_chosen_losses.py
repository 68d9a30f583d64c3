"""Losses that a configuration chooses by name among several: what is named where one of them is a sum."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelify.knowledge import Knowledge
from accelify.obligations import Status, validate

TEXT = """\
import json
import torch
import losses
from torch.utils.data import DataLoader
from accelify.runtime import Accelerator
config = json.load(open("c.json"))
accelerator = Accelerator()
model, loader = accelerator.prepare(torch.nn.Linear(4, 1), DataLoader(torch.load("d"), batch_size=8))
criterion = {chosen}
for x, y in loader:
    accelerator.backward(criterion(model(x), y))
"""
LOSSES = """\
import torch
import torch.nn.functional as F
def near(output, y):
    return F.mse_loss(output, y)
def far(output, y):
    return {far}
"""


@pytest.mark.parametrize(
    "chosen",
    [
        'getattr(losses, config["loss"])',
        'getattr(losses, config["loss"] + "")',
        'dict(a=losses.near, b=losses.far)[config["loss"]]',
    ],
)
@pytest.mark.parametrize(
    ("far", "status"),
    [("((output - y) ** 2).sum()", Status.NAMED), ("(output - y).abs().mean()", Status.PROVED)],
)
def test_a_loss_that_is_chosen_by_name(tmp_path: Path, chosen: str, far: str, status: Status) -> None:
    (tmp_path / "losses.py").write_text(LOSSES.format(far=far))
    found = validate(TEXT.format(chosen=chosen), tmp_path / "train.py", Knowledge()).obligations
    assert [one.status for one in found if one.demand == "loss"] == [status]
