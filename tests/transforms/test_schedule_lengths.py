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


LATE = f"""
class Trainer:
    def __init__(self, epochs=2):
        self.loader = {DATA}
        self.model = nn.Linear(4, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, {{}})

    def rate(self, step):
        return 1 - step / len(self.loader)

    def fit(self):
        for epoch in range(2):
            for x, y in self.loader:
                self.optimizer.zero_grad()
                nn.functional.mse_loss(self.model(x), y).backward()
                self.optimizer.step()
                self.scheduler.step()


Trainer().fit()
"""
PLAIN = f"""
loader = {DATA}
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def rate(step):
    return 1 - step / len(loader)


scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, {{}})
for x, y in loader:
    optimizer.zero_grad()
    nn.functional.mse_loss(model(x), y).backward()
    optimizer.step()
    scheduler.step()
"""
NAME, IN_SELF = "lambda s: 1 - s / len(loader)", "lambda s: 1 - s / len(self.loader)"


@pytest.mark.parametrize(
    ("script", "rate"),
    [(PLAIN, NAME), (PLAIN, "rate"), (PLAIN, "[rate]"), (LATE, IN_SELF), (LATE, "self.rate")],
)
def test_a_function_that_reads_the_loader_at_each_step(tmp_path: Path, script: str, rate: str) -> None:
    """Prepare binds the name anew that it reads: the length is that of one process, and the schedule stays as it is."""
    found = converted(tmp_path, HEAD + script.format(rate))
    assert "prepare(" in found.new_text
    assert "scheduler" not in found.new_text.partition("prepare(")[2].partition(")")[0]
    assert not [one for one in found.remaining if one.code == "ACC706"]


@pytest.mark.parametrize(
    ("script", "rate"),
    [
        (PLAIN, "lambda s, n=len(loader): 1 - s / n"),
        (LATE, "lambda s, n=len(self.loader): 1 - s / n"),
    ],
)
def test_a_function_that_has_the_original_length(tmp_path: Path, script: str, rate: str) -> None:
    found = converted(tmp_path, HEAD + script.format(rate))
    assert "scheduler" in found.new_text.partition("prepare(")[2].partition(")")[0]
    assert not [one for one in found.remaining if one.code == "ACC706"]
