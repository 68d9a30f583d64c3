"""Figures of one process's share that a module which is not converted shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelify.convert import convert_project
from accelify.proving import prove
from accelify.source import Source
from tests.transforms.test_project_roles import project
from tests.transforms.test_real_kinds import HEAD

STEPS = """\
def train(model, optimizer, loader, hist):
    for x, y in loader:
        loss = (model(x) - y).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        hist["loss"].append(loss.item())
"""
MAIN = (
    HEAD
    + """\
from plots import curves
from steps import train

loader = DataLoader(data, batch_size=4)
model = nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
hist = {"loss": []}
for epoch in range(2):
    train(model, optimizer, loader, hist)
curves(hist)
"""
)
PLOT = "import matplotlib.pyplot as plt\n\n\ndef curves(hist):\n"


def said(folder: Path, main: str, **modules: str) -> list[str]:
    project(folder, main=main, **modules)
    found = convert_project(Source.read(folder / "main.py"))
    prove(found, next(c for c in found if c.place == folder / "main.py"))
    return [f.message for c in found for f in c.remaining if f.code == "ACC701"]


@pytest.mark.parametrize(
    "plots",
    [
        PLOT + "    plt.plot(hist['loss'])\n    plt.show()\n",
        PLOT + "    last = sum(hist['loss'])\n    print(last)\n",
    ],
)
def test_a_list_that_another_module_fills_and_a_third_draws(tmp_path: Path, plots: str) -> None:
    assert said(tmp_path, MAIN, steps=STEPS, plots=plots)


@pytest.mark.parametrize(
    "plots",
    [
        PLOT + "    print(hist.keys())\n",
        PLOT + "    print('done')\n    return hist\n",
    ],
)
def test_what_shows_none_of_it(tmp_path: Path, plots: str) -> None:
    assert said(tmp_path, MAIN, steps=STEPS, plots=plots) == []


OWN_LOOP = """\
for epoch in range(2):
    losses = []
    for x, y in loader:
        loss = (model(x) - y).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    curves(losses)
"""


def test_what_is_reduced_before_is_that_of_all_processes(tmp_path: Path) -> None:
    main = MAIN.replace("from steps import train\n", "").split("hist =")[0] + OWN_LOOP
    assert said(tmp_path, main, plots=PLOT + "    plt.plot(hist)\n") == []
