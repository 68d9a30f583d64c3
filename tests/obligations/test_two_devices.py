"""What the engine says of tensors on the host that meet those of a prepared loader, which are on the device."""

from __future__ import annotations

import textwrap

import pytest

from accelify.knowledge import Knowledge
from accelify.obligations import Obligation, Status, validate

KNOWLEDGE = Knowledge()
FRAME = """\
import torch
from torch import nn
from torch.utils.data import DataLoader
from accelify.runtime import Accelerator
accelerator = Accelerator({accelerator})
model = nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(torch.load("data.pt"), batch_size=8)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
plain = DataLoader(torch.load("data.pt"), batch_size=8)


def score(model, batches):
    right = 0
    for x, y in batches:
        pred = model(x.to(accelerator.device)).argmax(1)
{body}
    return right


score(model, {batches})
"""


def found(body: str, accelerator: str = "", batches: str = "loader") -> list[Obligation]:
    lines = textwrap.indent(body, " " * 8)
    text = FRAME.format(body=lines, accelerator=accelerator, batches=batches)
    checked = validate(text, None, KNOWLEDGE)
    assert not checked.unread
    return [one for one in checked.of(Status.NAMED) if one.demand == "one device"]


MEETING = "right += (pred.cpu() == y).sum().item()"


@pytest.mark.parametrize(
    "body",
    [
        MEETING,
        "right += pred.detach().cpu().eq(y).sum().item()",
        "pred = pred.to('cpu')\nright += (pred - y).abs().sum().item()",
        "wrong = nn.functional.cross_entropy(model(x).cpu(), y)",
        "batch = {'labels': y}\nright += (pred.cpu() == batch['labels']).sum().item()",
        "right += (pred.to(torch.float).cpu() == y.float()).sum().item()",
    ],
)
def test_the_host_meets_the_device(body: str) -> None:
    (one,) = found(body)
    assert "joins a tensor on the host with one on the device" in one.message
    assert one.line > FRAME.count("\n", 0, FRAME.index("{body}"))


@pytest.mark.parametrize(
    "body",
    [
        "right += (pred == y).sum().item()",
        "right += (pred.cpu() == y.cpu()).sum().item()",
        "right += (pred.cpu().to(y.device) == y).sum().item()",
        "right += (pred.cpu().to(accelerator.device) == y).sum().item()",
        "right = right + pred.float().mean().cpu() * y",  # a single number goes with either
        "right += pred.sum().item() * y",
        "right += (pred.cpu().numpy() == y.cpu().numpy()).sum()",
        "y = y.cpu()\nright += (pred.cpu() == y).sum().item()",
        "where = x if len(x) > 3 else x.cpu()\nright += (where.argmax(1) == y).sum().item()",
    ],
)
def test_what_lies_in_one_place_or_nobody_knows_where(body: str) -> None:
    assert found(body) == []


def test_a_run_on_the_cpu_and_a_loader_that_is_not_prepared() -> None:
    assert found(MEETING, accelerator="cpu=True") == []
    assert found(MEETING, batches="plain") == []
    assert found(MEETING, accelerator="cpu=len(data) > 8")
