"""Options that a checkpoint brings again, behind what was moved to their device already."""

from __future__ import annotations

import pytest

from accelify.convert import convert_source
from accelify.source import Source

SCRIPT = """
import argparse
import torch
import torch.nn as nn

parser = argparse.ArgumentParser()
parser.add_argument("--device", type=str, default="cuda")
parser.add_argument("--resume", action="store_true")
args = parser.parse_args()

def rows(args, count):
    return torch.randn(count, 8, 3).to(torch.device(args.device))

{early}
optimizer = torch.optim.Adam(net.parameters())

def train(net, data):
    for row in range(0, 64, 8):
        loss = net(data[row:row + 8])[0].mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

if args.resume:
    checkpoint = torch.load("last.pt")
    {again}
    net.load_state_dict(checkpoint["net"])
for epoch in range(3):
    train(net, rows(args, 64))
"""
EARLY = "data = rows(args, 64)\nnet = nn.GRU(3, 3).to(args.device)"
AGAIN = 'args, start = checkpoint["args"], checkpoint["epoch"]'


def _lines(**places: str) -> list[str]:
    found = convert_source(Source.from_text(SCRIPT.format(**places)))
    assert found.changed
    return [line.strip() for line in found.new_text.splitlines()]


def test_the_accelerator_is_made_before_the_first_move() -> None:
    lines = _lines(early=EARLY, again=AGAIN)
    made = lines.index('accelerator = Accelerator(cpu=str(args.device) == "cpu")')
    assert lines[made + 1] == "args.device = accelerator.device.type"
    assert made < lines.index("data = rows(args, 64)")
    # Those of the checkpoint name the device of the process that saved them.
    assert lines[lines.index(AGAIN) + 1] == "args.device = accelerator.device.type"


@pytest.mark.parametrize("again", ["start = checkpoint['epoch']", "args.lr = checkpoint['lr']"])
def test_options_that_stay_are_told_once(again: str) -> None:
    assert _lines(early=EARLY, again=again).count("args.device = accelerator.device.type") == 1
