"""A class that trains, of which only derived classes are made: those whose `__init__` is another one store the
Accelerator themselves."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from accelify.convert import convert_paths

BASE = """\
import torch
from torch.utils.data import DataLoader


class Base:
    def __init__(self):
        self.net = torch.nn.Linear(4, 1)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)

    def train(self, data):
        for x, y in DataLoader(data, batch_size=8):
            self.optimizer.zero_grad()
            torch.nn.functional.mse_loss(self.net(x), y).backward()
            self.optimizer.step()
"""
MAIN = """\
import torch
from base import Base
from torch.utils.data import TensorDataset


class Wide(Base):
    def __init__(self, width):
        {first}
        self.net = torch.nn.Linear(4, width)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)


data = TensorDataset(torch.randn(64, 4), torch.randn(64, 8))
Wide(8).train(data)
{more}
"""


@pytest.mark.parametrize(
    ("first", "more"), [("pass", ""), ("super().__init__()", ""), ("pass", "Wide(8).train(data)")]
)
def test_it_runs(tmp_path: Path, first: str, more: str) -> None:
    (tmp_path / "base.py").write_text(BASE)
    (tmp_path / "main.py").write_text(MAIN.format(first=first, more=more))
    found = convert_paths([tmp_path / "main.py"])
    assert [one.status for one in found] == ["converted", "converted"]
    for one in found:
        assert one.place is not None
        one.place.write_text(one.new_text)
    assert "self.accelerator.backward(" in (tmp_path / "base.py").read_text()
    subprocess.run([sys.executable, "main.py"], cwd=tmp_path, check=True)
