"""Schedules of training that counts steps."""

from __future__ import annotations

import pytest

from accelify.convert import ConvertOptions, convert_source
from accelify.source import Source

HEAD = """\
import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR, OneCycleLR
from torch.utils.data import DataLoader, TensorDataset

data = TensorDataset(torch.randn(32, 4), torch.randn(32, 1))
"""
STEP = """\
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(net(x), y)
            loss.backward()
            optimizer.step()
            scheduler.step()
"""
TRAIN = """\
def train(net, loader, epochs, steps=8):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    scheduler = {scheduler}
    for epoch in range(epochs):
        for x, y in loader:
{step}

def main():
    net, loader = nn.Linear(4, 1), DataLoader(data, batch_size=4)
    train(net, loader, 2, len(loader) * 2)


main()
"""
COUNTED = """\
net, loader = nn.Linear(4, 1), DataLoader(data, batch_size=4)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
scheduler = LambdaLR(optimizer, lambda step: 1 - step / 40)
done = 0
while {test}:
    for epoch in range(1):
        for x, y in loader:
{step}            done += 1
            {leave}
"""


def prepared(text: str, batch_size: str = "per-process") -> str:
    conversion = convert_source(Source.from_text(text), ConvertOptions(batch_size=batch_size))
    assert conversion.status == "converted", conversion.reason
    return "\n".join(line for line in conversion.new_text.splitlines() if "accelerator.prepare" in line)


@pytest.mark.parametrize(
    "scheduler",
    [
        "OneCycleLR(optimizer, max_lr=0.1, total_steps=len(loader) * epochs)",
        "OneCycleLR(optimizer, max_lr=0.1, epochs=epochs, steps_per_epoch=len(loader))",
        "OneCycleLR(optimizer, max_lr=0.1, total_steps=steps)",
    ],
)
def test_a_schedule_made_for_the_length_of_one_process(scheduler: str) -> None:
    text = HEAD + TRAIN.format(scheduler=scheduler, step=STEP)
    assert "scheduler" not in prepared(text)
    assert "scheduler" in prepared(text, "total")


def test_a_schedule_made_for_a_number_is_the_original_s() -> None:
    text = HEAD + TRAIN.format(scheduler="OneCycleLR(optimizer, max_lr=0.1, total_steps=16)", step=STEP)
    assert "scheduler" in prepared(text)


@pytest.mark.parametrize(
    ("test", "leave", "found"),
    [
        ("done < 40", "", False),
        ("True", "if done >= 40: raise SystemExit", False),
        ("True", "if done == 40:\n                raise SystemExit", False),
        ("done <= 40 and not failed", "", False),
        ("True", "if done + 1 == 40 or failed:\n                break", False),
        ("epochs < 3", "", True),
        ("True", "if loss < 0.1: raise SystemExit", True),
    ],
)
def test_training_that_ends_by_a_count_of_steps(test: str, leave: str, found: bool) -> None:
    text = HEAD + "epochs, failed = 0, False\n" + COUNTED.format(test=test, step=STEP, leave=leave)
    assert ("scheduler" in prepared(text)) == found
