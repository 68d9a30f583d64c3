"""Calls that no edit comes to, in modules that are converted with a script: where they are run by themselves, and by
names that are made at run time."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelify.convert import convert_paths
from tests.test_other_callers import optional

TRAIN = """\
import torch
from torch.utils.data import DataLoader
from wrapped import Wrapped, shown

wrapped = Wrapped(torch.nn.Linear(4, 1))
wrapped.train(DataLoader(torch.load("data.pt"), batch_size=8))
shown(wrapped.model)
"""
WRAPPED = """\
import torch


class Wrapped:
    def __init__(self, model):
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.model = model.to(self.device)

    def train(self, loader):
        optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        for x, y in loader:
            x, y = x.to(self.device), y.to(self.device)
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(self.model(x), y).backward()
            optimizer.step()

    def shown(self):
        return self.model


def shown(model, count=10):
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    print(model(torch.ones(count, 4, device=device)))
"""
RESTORED = """

def restored(path):
    made = torch.load(path)
    return Wrapped(eval(made[0]) if made else torch.nn.Linear(4, 1)).shown()
"""


@pytest.mark.parametrize(
    ("more", "fitting"),
    [
        ("", set()),
        ("\n\nif __name__ == '__main__':\n    shown(torch.load('net.pt'))\n", {"shown"}),
        (RESTORED, {"restored", "shown"}),
    ],
)
def test_they_fit(tmp_path: Path, more: str, fitting: set[str]) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "wrapped.py").write_text(f"{WRAPPED}{more}")
    found = convert_paths([tmp_path / "train.py"])
    assert [one.status for one in found] == ["converted", "converted"]
    assert optional(found) == fitting
