"""Evaluation passes of a loop over phases that would lose whole batches by drop_last=True."""

from __future__ import annotations

import pytest

from accelify.conversion import Conversion, ConvertOptions
from accelify.convert import convert_source
from accelify.source import Source
from tests.transforms.support import PATH, codes

HEAD = """\
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

data = {phase: TensorDataset(torch.randn(40, 4), torch.randint(2, (40,))) for phase in ("train", "val")}


def load(phase, drop_last=False):
    return DataLoader(data[phase], batch_size=8, drop_last=drop_last)


def load_by_phase(phase):
    return DataLoader(data[phase], batch_size=8, shuffle=phase == "train", drop_last=phase != "train")


"""
PHASES = """\
model = nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for phase in ["train", "val"]:
        model.train(phase == "train")
        correct = 0
        for x, y in loaders[phase]:
            optimizer.zero_grad()
            with torch.set_grad_enabled(phase == "train"):
                output = model(x)
                loss = F.cross_entropy(output, y)
            if phase == "train":
                loss.backward()
                optimizer.step()
            correct += (output.argmax(1) == y).sum().item()
        print(phase, correct / len(data[phase]))
"""
FUNCTION = """\
{loaders}
model = nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def run(loader, training):
    correct = 0
    with torch.set_grad_enabled(training):
        for x, y in loader:
            output = model(x)
            if training:
                optimizer.zero_grad()
                F.cross_entropy(output, y).backward()
                optimizer.step()
            correct += (output.argmax(1) == y).sum().item()
    return correct


for epoch in range(2):
    print(run(train_loader, True), run(val_loader, False))
"""


def _converted(text: str, batch_size: str = "per-process") -> Conversion:
    found = convert_source(Source(PATH, HEAD + text), ConvertOptions(batch_size=batch_size))
    assert found.status == "converted", found.reason
    return found


LEFT_OUT = [
    'loaders = {"train": load("train"), "val": load("val", drop_last=True)}',
    'loaders = {"train": load_by_phase("train"), "val": load_by_phase("val")}',
    "loaders = {phase: DataLoader(data[phase], 8, drop_last=True) for phase in data}",
    'loaders = {phase: DataLoader(data[phase], 8, drop_last=True) for phase in ["train", "val"]}',
    'loaders = {"train": load("train", True)}\nloaders["val"] = load("val", True)',
]
WHOLE = [
    'loaders = {"train": load("train", drop_last=True), "val": load("val")}',
    'loaders = {"train": load("train"), "val": load("val")}',
    'loaders = {phase: DataLoader(data[phase], 8, drop_last=phase == "train") for phase in data}',
    "loaders = {phase: DataLoader(data[phase], 8) for phase in data}",
]


@pytest.mark.parametrize("form", [PHASES, PHASES.replace("in loaders[phase]:", "in loader:")])
@pytest.mark.parametrize(("made", "left_out"), [*((m, True) for m in LEFT_OUT), *((m, False) for m in WHOLE)])
def test_a_loop_over_phases(form: str, made: str, left_out: bool) -> None:
    form = form.replace(
        "        correct = 0\n",
        "        correct, loader = 0, loaders[phase]\n        loader = loaders[phase]\n",
    )
    found = _converted(f"{made}\n{form}")
    assert ("ACC308" in codes(found)) == left_out
    assert ("# TODO(accelify ACC308)" in found.new_text) == left_out
    assert "ACC308" not in codes(_converted(f"{made}\n{form}", batch_size="total"))


@pytest.mark.parametrize(
    ("train", "val", "left_out"),
    [("True", "True", True), ("True", "False", False), ("False", "False", False)],
)
def test_a_function_that_is_told_whether_it_trains(train: str, val: str, left_out: bool) -> None:
    loaders = f'train_loader, val_loader = load("train", {train}), load("val", {val})'
    assert ("ACC308" in codes(_converted(FUNCTION.format(loaders=loaders)))) == left_out


def test_a_function_that_trains_in_all_of_its_calls() -> None:
    loaders = 'train_loader, val_loader = load("train", True), load("val", True)'
    assert "ACC308" not in codes(_converted(FUNCTION.replace("False)", "True)").format(loaders=loaders)))


def test_a_loop_that_only_trains() -> None:
    loop = PHASES.replace('["train", "val"]', '["train"]').replace("if phase", "if True or phase")
    loaders = 'loaders = {"train": load("train", drop_last=True)}\n'
    assert "ACC308" not in codes(_converted(loaders + loop))
