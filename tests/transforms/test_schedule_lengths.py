"""Schedules that a helper makes, from the length of a loader that is handed on."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelify.conversion import Conversion
from accelify.convert import convert_project
from accelify.source import Source

HEAD = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
"""
MAKE = """
def make(model, num_training_steps):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    {schedule}
    return optimizer, scheduler
"""
LAMBDA = "torch.optim.lr_scheduler.LambdaLR(optimizer, {})"
IN_PLACE = f"scheduler = {LAMBDA.format('lambda s: max(0.0, 1 - s / num_training_steps)')}"
BY_NAME = f"""def rate(step):
        return max(0.0, 1 - step / num_training_steps)
    scheduler = {LAMBDA.format("rate")}"""
TRAIN = """
def train_model(epochs, train_loader):
    model = nn.Linear(4, 1)
    {made}
    for epoch in range(epochs):
        for x, y in train_loader:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            scheduler.step()
"""
GIVEN = "optimizer, scheduler = make(model, num_training_steps=len(train_loader) * epochs)"
MEASURED = "optimizer, scheduler = make(model, train_loader)"
DATA = "DataLoader(TensorDataset(torch.randn(32, 4), torch.randn(32, 1)), batch_size=4)"
MAIN = f"""
def main():
    loader = {DATA}
    train_model(2, loader)


main()
"""
FROM_HELPER = "from helper import make\n"


def converted(tmp_path: Path, main: str, helper: str = "") -> Conversion:
    (tmp_path / "main.py").write_text(main)
    (tmp_path / "helper.py").write_text(helper)
    (found,) = convert_project(Source.read(tmp_path / "main.py"))
    assert found.status == "converted", found.reason
    return found


def says_length(conversion: Conversion) -> bool:
    return "ACC401" in {f.code for f in conversion.remaining}


@pytest.mark.parametrize("schedule", [IN_PLACE, BY_NAME])
@pytest.mark.parametrize("elsewhere", [True, False])
def test_of_a_loader_that_is_prepared_by_then(tmp_path: Path, schedule: str, elsewhere: bool) -> None:
    """The length is that of one process: prepared, the schedule would end after 1/N of the run."""
    make, train = MAKE.format(schedule=schedule), TRAIN.format(made=GIVEN)
    found = (
        converted(tmp_path, HEAD + FROM_HELPER + train + MAIN, HEAD + make)
        if elsewhere
        else converted(tmp_path, HEAD + make + train + MAIN)
    )
    assert "model, optimizer = accelerator.prepare(model, optimizer)\n" in found.new_text
    assert not says_length(found)


def test_a_helper_that_measures_itself(tmp_path: Path) -> None:
    make = MAKE.format(schedule="num_training_steps = 2 * len(loader)\n    " + IN_PLACE)
    make = make.replace("(model, num_training_steps)", "(model, loader)")
    found = converted(tmp_path, HEAD + FROM_HELPER + TRAIN.format(made=MEASURED) + MAIN, HEAD + make)
    assert "model, optimizer = accelerator.prepare(model, optimizer)\n" in found.new_text
    assert not says_length(found)


@pytest.mark.parametrize("elsewhere", [True, False])
def test_of_the_original_length(tmp_path: Path, elsewhere: bool) -> None:
    """Prepared, the schedule advances by the batches of all processes, which the length counts."""
    make = MAKE.format(schedule=IN_PLACE)
    train = TRAIN.format(made=f"train_loader = {DATA}\n    {GIVEN}").replace("epochs, train_loader", "epochs")
    main = f"{train}\n\ntrain_model(2)\n"
    found = (
        converted(tmp_path, HEAD + FROM_HELPER + main, HEAD + make)
        if elsewhere
        else converted(tmp_path, HEAD + make + main)
    )
    assert "        model, optimizer, train_loader, scheduler\n" in found.new_text
    assert not says_length(found)


def test_a_length_that_is_taken_behind_prepare_and_handed_on(tmp_path: Path) -> None:
    make = MAKE.format(schedule=IN_PLACE)
    train = TRAIN.format(made=GIVEN.replace("len(train_loader)", "steps"))
    train = train.replace("epochs, train_loader", "epochs, train_loader, steps")
    main = MAIN.replace("train_model(2, loader)", "steps = len(loader)\n    train_model(2, loader, steps)")
    found = converted(tmp_path, HEAD + FROM_HELPER + train + main, HEAD + make)
    assert "accelerator.prepare(loader)\n    steps = len(loader)\n" in found.new_text
    assert "model, optimizer = accelerator.prepare(model, optimizer)\n" in found.new_text
    assert not says_length(found)


TOLD = f"""
def train_model(args):
    train_loader = {DATA}
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    {{total}}
    scheduler = {LAMBDA.format("lambda s: max(0.0, 1 - s / total)")}
    step = 0
    for epoch in range(args.epochs):
        for x, y in train_loader:
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
            scheduler.step()
            step += 1
            {{end}}


train_model(parser.parse_args())
"""
BRANCHES = """if args.max_steps > 0:
        total = args.max_steps
        args.epochs = args.max_steps // len(train_loader) + 1
    else:
        total = len(train_loader) * args.epochs"""
IN_ONE = "total = args.max_steps if args.max_steps > 0 else len(train_loader) * args.epochs"
OR = "total = args.max_steps or len(train_loader) * args.epochs"
CHAINED, SIMPLE = (
    "if 0 < args.max_steps <= step: break",
    "if args.max_steps > 0 and step >= args.max_steps: break",
)
ARGUMENTS = "import argparse\nparser = argparse.ArgumentParser()\n"


def told(tmp_path: Path, total: str, end: str) -> list[str]:
    """What is said of a schedule that is made for a told number of steps or for the length of a loader."""
    found = converted(tmp_path, HEAD + ARGUMENTS + TOLD.format(total=total, end=end))
    messages = [f.message for f in found.remaining if f.code == "ACC401"]
    return [message for message in messages if "in one branch" in message]


@pytest.mark.parametrize("total", [BRANCHES, IN_ONE, OR])
@pytest.mark.parametrize(("end", "wrong"), [(CHAINED, "N times too fast"), (SIMPLE, "N times too slow")])
def test_told_or_measured(tmp_path: Path, total: str, end: str, wrong: str) -> None:
    """Neither a prepared schedule nor one that is left as it is suits both."""
    (message,) = told(tmp_path, total, end)
    assert "`args.max_steps`" in message
    assert wrong in message


@pytest.mark.parametrize(
    ("total", "end"),
    [
        (IN_ONE, ""),  # the epochs end the training, whatever number is told
        (IN_ONE, "if step > 1000: break"),
        ("total = len(train_loader) * args.epochs", CHAINED),
        ("total = args.max_steps", CHAINED),
        ("total = 100\n    total = len(train_loader) * args.epochs", CHAINED),
    ],
)
def test_only_told_or_only_measured(tmp_path: Path, total: str, end: str) -> None:
    assert not told(tmp_path, total, end)


def test_told_or_measured_behind_prepare(tmp_path: Path) -> None:
    text = HEAD + ARGUMENTS + TOLD.format(total=IN_ONE, end=CHAINED)
    text = text.replace("def train_model(args):", "def train_model(args, train_loader):")
    text = text.replace(f"    train_loader = {DATA}\n", "")
    text = text.replace("parse_args())", f"parse_args(), {DATA})")
    found = converted(tmp_path, text)
    assert "model, optimizer = accelerator.prepare(model, optimizer)\n" in found.new_text
    assert not says_length(found)
