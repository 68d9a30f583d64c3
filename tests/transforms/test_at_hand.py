"""Functions of other modules that are called beside an object which keeps the Accelerator."""

from __future__ import annotations

from pathlib import Path

from accelify.convert import convert_project
from accelify.source import Source

AGENT = """\
import torch
from torch import nn
from helper import Base, draw


class Agent(Base):
    def __init__(self):
        self.net = nn.Linear(4, 2)
        self.optimizer = torch.optim.Adam(self.net.parameters())

    def learn(self, x):
        loss = self.net(x).pow(2).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


"""
HELPER = """\
import matplotlib.pyplot as plt
import numpy as np
import torch


def draw(values):
    plt.plot(np.array(values))
    plt.savefig("a.png")


class Base:
    def keep(self):
        torch.save([1], "a.pt")
"""


def beside(folder: Path, body: str) -> tuple[str, list[str]]:
    """What becomes of lines behind the class, and the findings about what is written elsewhere."""
    (folder / "helper.py").write_text(HELPER)
    (folder / "main.py").write_text(AGENT + body)
    (conversion,) = convert_project(Source.read(folder / "main.py"))
    assert conversion.status == "converted", conversion.reason
    (folder / "main.py").write_text(conversion.new_text)
    again = convert_project(Source.read(folder / "main.py"))[0]
    assert again.new_text == conversion.new_text
    left = [f.message for f in conversion.remaining if f.code == "ACC210"]
    return conversion.new_text.rpartition("return loss.item()\n\n\n")[2], left


def test_they_are_called_by_the_main_process_alone(tmp_path: Path) -> None:
    text, left = beside(
        tmp_path,
        "agent = Agent()\nfor i in range(3):\n    agent.learn(torch.randn(1, 4))\n    draw([i])\nagent.keep()\n",
    )
    assert "    if agent.accelerator.is_main_process:\n        draw([i])\n" in text
    assert "\nif agent.accelerator.is_main_process:\n    agent.keep()\n" in text
    assert not left


def test_before_the_object_is_made_it_is_only_said(tmp_path: Path) -> None:
    text, left = beside(tmp_path, "draw([1])\nagent = Agent()\nagent.learn(torch.randn(1, 4))\n")
    assert text.startswith("draw([1])\nagent = Agent()\n")
    assert ["the Accelerator is not known there" in message for message in left] == [True]
