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


def test_a_helper_that_measures_itself(tmp_path: Path) -> None:
    make = MAKE.format(schedule="num_training_steps = 2 * len(loader)\n    " + IN_PLACE)
    make = make.replace("(model, num_training_steps)", "(model, loader)")
    found = converted(tmp_path, HEAD + FROM_HELPER + TRAIN.format(made=MEASURED) + MAIN, HEAD + make)
    assert "model, optimizer = accelerator.prepare(model, optimizer)\n" in found.new_text


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


def test_a_length_that_is_taken_behind_prepare_and_handed_on(tmp_path: Path) -> None:
    make = MAKE.format(schedule=IN_PLACE)
    train = TRAIN.format(made=GIVEN.replace("len(train_loader)", "steps"))
    train = train.replace("epochs, train_loader", "epochs, train_loader, steps")
    main = MAIN.replace("train_model(2, loader)", "steps = len(loader)\n    train_model(2, loader, steps)")
    found = converted(tmp_path, HEAD + FROM_HELPER + train + main, HEAD + make)
    assert "accelerator.prepare(loader)\n    steps = len(loader)\n" in found.new_text
    assert "model, optimizer = accelerator.prepare(model, optimizer)\n" in found.new_text
