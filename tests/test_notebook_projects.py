"""Notebooks whose training loop stands in modules of their project."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from accelify.conversion import Conversion
from accelify.convert import convert_paths

AGENT = """\
import torch
from torch import nn


class Agent:
    def __init__(self, size):
        self.net = nn.Linear(size, 2)
        self.optimizer = torch.optim.Adam(self.net.parameters())

    def step(self, x, y):
        loss = nn.functional.mse_loss(self.net(x), y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
"""
CELLS = [
    "import torch\nfrom agent import Agent\n",
    "agent = Agent(4)\nagent.step(torch.randn(8, 4), torch.randn(8, 2))\n",
]
SAVE = 'torch.save(agent.net.state_dict(), "net.pth")\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "agent.py").write_text(AGENT)
    return tmp_path


def notebook(folder: Path, *cells: str) -> Path:
    made = [
        {
            "cell_type": "code",
            "execution_count": None,
            "metadata": {},
            "outputs": [],
            "source": cell.splitlines(True),
        }
        for cell in cells
    ]
    path = folder / "run.ipynb"
    path.write_text(json.dumps({"cells": made, "metadata": {}, "nbformat": 4, "nbformat_minor": 4}, indent=1))
    return path


def convert(path: Path) -> dict[str, Conversion]:
    return {c.source.path.name: c for c in convert_paths([path]) if c.source.path is not None}


def test_the_modules_that_train_are_converted_with_the_notebook(folder: Path) -> None:
    found = convert(notebook(folder, *CELLS))
    assert "self.accelerator.backward(loss)" in found["agent.py"].new_text


def test_a_notebook_that_saves_makes_the_accelerator_and_hands_it_in(folder: Path) -> None:
    path = notebook(folder, *CELLS, SAVE)
    found = convert(path)
    cells = json.loads(found["run.ipynb"].source.encode(found["run.ipynb"].new_text))["cells"]
    assert "accelerator = Accelerator(" in "".join(cells[1]["source"])
    assert "agent = Agent(accelerator, 4)" in "".join(cells[1]["source"])
    assert "accelerator.save(accelerator.unwrap_model(agent.net).state_dict()" in "".join(cells[2]["source"])
    assert "def __init__(self, accelerator, size):" in found["agent.py"].new_text
    assert "ACC501" in {f.code for f in found["run.ipynb"].remaining}
    for conversion in found.values():
        assert conversion.source.path is not None
        conversion.source.path.write_bytes(conversion.source.encode(conversion.new_text))
    assert {c.status for c in convert(path).values()} == {"unchanged"}


def test_who_calls_a_module_of_a_notebook_goes_on(folder: Path) -> None:
    (folder / "other.py").write_text("from agent import Agent\n\nAgent(3)\n")
    found = convert(notebook(folder, *CELLS, SAVE))["run.ipynb"]
    assert not [f for f in found.remaining if f.code == "ACC409"]
    assert "accelerator=accelerator)" in found.new_text


def test_a_notebook_without_training_anywhere_says_so(folder: Path) -> None:
    (folder / "agent.py").write_text("def look():\n    pass\n")
    found = convert(notebook(folder, "import torch\nfrom agent import look\n", "look()\n"))
    assert found["run.ipynb"].reason == "it has no training loop (no call of backward)"
