"""Calls of a function that trains which train nothing."""

from __future__ import annotations

import textwrap

import pytest

from accelify.convert import convert_source
from accelify.source import Source
from tests.transforms.support import PATH

SCRIPT = """
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

{step}

def evaluate(net, test_loader):
    net.eval()
    losses = []
    for x, y in test_loader:
        losses.append({call}.item())
    return sum(losses) / len(losses)

net = nn.Linear(4, 2)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
data = TensorDataset(torch.randn(32, 4), torch.randn(32, 2))
train_loader = DataLoader(data, batch_size=4, shuffle=True)
test_loader = DataLoader(data, batch_size=4)
for epoch in range(2):
    for x, y in train_loader:
        step(net, x, y, {train})
    print(evaluate(net, test_loader))
"""
LEAVES = """
def step(net, x, y, opt):
    loss = F.mse_loss(net(x), y)
    if not net.training:
        return loss
    opt.zero_grad()
    loss.backward()
    opt.step()
    return loss
"""
ASKS = """
def step(net, x, y, opt=None):
    loss = F.mse_loss(net(x), y)
    if opt is not None:
        opt.zero_grad()
        loss.backward()
        opt.step()
    return loss
"""
TOLD = """
def step(net, x, y, train=True):
    loss = F.mse_loss(net(x), y)
    if not train:
        return loss
    opt.zero_grad()
    learn(loss)
    opt.step()
    return loss
def learn(loss):
    loss.backward()
"""
MAKES = ASKS.replace(
    "    if opt is not None",
    "    opt = opt or torch.optim.SGD(net.parameters(), 0.1)\n    if opt is not None",
)


@pytest.mark.parametrize(
    ("step", "call", "train", "idle"),
    [
        (LEAVES, "step(net, x, y, None)", "opt", True),
        (LEAVES, "step(net, x, y, opt)", "opt", False),
        (ASKS, "step(net, x, y, opt=None)", "opt", True),
        (ASKS, "step(net, x, y)", "opt", True),
        (TOLD, "step(net, x, y, train=False)", "True", True),
        (TOLD, "step(net, x, y, train=True)", "True", False),
        (MAKES, "step(net, x, y, None)", "opt", False),
        (
            LEAVES.replace("opt.zero_grad()", "pass").replace("opt.step()", "pass"),
            "step(net, x, y, None)",
            "opt",
            False,
        ),
    ],
)
def test_the_loader_of_an_evaluation_stays_whole(step: str, call: str, train: str, idle: bool) -> None:
    text = SCRIPT.format(step=textwrap.dedent(step), call=call, train=train)
    conversion = convert_source(Source.from_text(text, PATH))
    assert conversion.status == "converted", conversion.reason
    assert "train_loader = accelerator.prepare(" in conversion.new_text or not idle
    assert ("ACC303" in {f.code for f in conversion.remaining}) is idle
