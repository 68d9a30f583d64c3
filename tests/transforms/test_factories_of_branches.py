"""A model made by one factory or another, in several functions: each prepares what it made, whichever it was."""

from __future__ import annotations

import pytest

from accelify.convert import convert_source
from accelify.source import Source
from tests.transforms.support import PATH

TEXT = """
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader


def small():
    net = nn.Linear(4, 2)
    net.cuda()
    return net, 1


def large():
    net = nn.Linear(4, 2, bias=False)
    net.cuda()
    return net, 2


def train(stage):
    if stage == 1:
        net, _ = small()
    else:
        net, _ = large()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for x, y in DataLoader(data, batch_size=4):
        loss = nn.functional.cross_entropy(net(x.cuda()), y.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def sample(stage):
    {made}
    net.eval()
    return net(torch.ones(1, 4).cuda())


train(2)
sample(2)
"""
BOTH = "if stage == 1:\n        net, _ = small()\n    else:\n        net, _ = large()"


def converted(made: str) -> str:
    found = convert_source(Source.from_text(TEXT.replace("{made}", made), PATH))
    assert found.status == "converted", found.reason
    return found.new_text


@pytest.mark.parametrize("made", [BOTH, "net, _ = small()", "net, _ = large()"])
def test_what_any_of_the_factories_makes_is_prepared_where_it_is_evaluated(made: str) -> None:
    text = converted(made)
    assert ".cuda()" not in text
    assert f"    {made}\n    net = accelerator.prepare(net)\n    net.eval()" in text


def test_another_model_of_the_name_is_not() -> None:
    text = converted("net = nn.Linear(4, 2)\n    net.cuda()")
    assert "net = accelerator.prepare(net)" not in text
    assert "net = nn.Linear(4, 2)\n    net.cuda()\n    net.eval()" in text
