"""`from pack import Trainer`, where the package takes the class out of a module of the same name."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelify.convert import convert_project
from accelify.source import Source

TRAINER = """\
import torch
from torch.utils.data import DataLoader, TensorDataset


class Trainer:
    def __init__(self, n):
        self.model = torch.nn.Linear(n, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.loader = DataLoader(TensorDataset(torch.randn(8, n), torch.randn(8, 1)), batch_size=2)

    def train(self):
        for x, y in self.loader:
            loss = (self.model(x) - y).pow(2).mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
"""


@pytest.mark.parametrize(
    ("package", "home", "script"),
    [
        ("from .Trainer import Trainer\n", "Trainer", "from pack import Trainer\nTrainer(3).train()\n"),
        ("from .Trainer import Trainer\n", "Trainer", "import pack\npack.Trainer(3).train()\n"),
        ("from .work import Trainer\n", "work", "from pack import Trainer\nTrainer(3).train()\n"),
        ("from . import Trainer\n", "Trainer", "from pack import Trainer\nTrainer.Trainer(3).train()\n"),
        ("", "Trainer", "from pack import Trainer\nTrainer.Trainer(3).train()\n"),
        ("from .Trainer import *\n", "Trainer", "from pack.Trainer import Trainer\nTrainer(3).train()\n"),
    ],
)
def test_the_class_is_found(tmp_path: Path, package: str, home: str, script: str) -> None:
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "__init__.py").write_text(package)
    (tmp_path / "pack" / f"{home}.py").write_text(TRAINER)
    if home == "work":  # which the name does not mean
        (tmp_path / "pack" / "Trainer.py").write_text("Trainer = None\n")
    (tmp_path / "train.py").write_text(script)
    found = convert_project(Source.read(tmp_path / "train.py"))
    assert found[0].status == "converted", found[0].reason
    changed = next(one for one in found if one.source.path is not None and one.source.path.stem == home)
    assert "self.accelerator.backward(loss)" in changed.new_text
