"""Schedules of training that counts steps."""

from __future__ import annotations

import pytest

from accelify.conversion import ConvertOptions
from accelify.convert import convert_source
from accelify.source import Source

HEAD = """\
import sys

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
        ("True", "if done >= 40: sys.exit('enough')", False),
        ("done <= 40 and not failed", "", False),
        ("True", "if done + 1 == 40 or failed:\n                break", False),
        ("epochs < 3", "", True),
        ("True", "if loss < 0.1: raise SystemExit", True),
    ],
)
def test_training_that_ends_by_a_count_of_steps(test: str, leave: str, found: bool) -> None:
    text = HEAD + "epochs, failed = 0, False\n" + COUNTED.format(test=test, step=STEP, leave=leave)
    assert ("scheduler" in prepared(text)) == found


@pytest.mark.parametrize(
    ("behind", "number", "found"),
    [
        (True, "len(loader) * 5", True),  # those of one process: the schedule goes by the batches of all
        (False, "len(loader) * 5", False),  # the original's: as many steps as before
        (True, "40 if data else len(loader) * 5", False),
        (True, "int(sys.argv[1])", False),
    ],
)
def test_training_that_ends_by_the_length_of_its_loader(behind: bool, number: str, found: bool) -> None:
    text = COUNTED.format(test="done < total", step=STEP, leave="")
    start, made = "net, loader =", "scheduler = LambdaLR"
    loader, rest = text[text.index(start) : text.index("optimizer =")], text[text.index("optimizer =") :]
    if behind:
        rest = rest.replace("done = 0\n", f"done = 0\ntotal = {number}\n", 1)
    else:
        rest = f"total = {number}\n{rest}"
    assert made in rest
    assert ("scheduler" in prepared(HEAD + loader + rest)) == found


STEPPED_ELSEWHERE = """\
class Trainer:
    def __init__(self):
        self.net = nn.Linear(4, 1)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)
        self.scheduler = LambdaLR(self.optimizer, lambda step: 1 - step / 40)

    def update(self, x, y):
        self.optimizer.zero_grad()
        nn.functional.mse_loss(self.net(x), y).backward()
        self.optimizer.step()

    def update_learning_rate(self):
        self.scheduler.step()


loader, trainer, done = DataLoader(data, batch_size=4), Trainer(), 0
while True:
    for x, y in loader:
        trainer.update_learning_rate()
        trainer.update(x, y)
        done += 1
        if done >= 40:
            {leave}
"""


@pytest.mark.parametrize(("leave", "found"), [("sys.exit()", False), ("print(done)", True)])
def test_the_step_of_a_method(leave: str, found: bool) -> None:
    assert ("scheduler" in prepared(HEAD + STEPPED_ELSEWHERE.format(leave=leave))) == found


EPOCHS = """\
loader = DataLoader(data, batch_size=4)
net = nn.Linear(4, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
{length}scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max={given})
for epoch in range(3):
    for x, y in loader:
{step}
"""


@pytest.mark.parametrize(("length", "given"), [("", "len(loader)"), ("length = len(loader)\n", "length")])
def test_the_length_of_a_schedule_of_epochs_is_the_original_s(length: str, given: str) -> None:
    """Prepare comes behind it: what counts epochs is not stretched, and an epoch of one process is shorter."""
    step = STEP.replace("            ", "        ").replace("        scheduler", "    scheduler")
    conversion = convert_source(Source.from_text(HEAD + EPOCHS.format(length=length, given=given, step=step)))
    lines = conversion.new_text.splitlines()
    assert "net, optimizer, loader = accelerator.prepare(net, optimizer, loader)" in lines
    (measured,) = [n for n, line in enumerate(lines) if "len(loader)" in line]
    assert measured < next(n for n, line in enumerate(lines) if "accelerator.prepare" in line)
    assert "ACC401" not in {f.code for f in conversion.remaining}
