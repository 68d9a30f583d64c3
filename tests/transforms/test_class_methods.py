"""The Accelerator in methods that have no object: those of a class, and static ones."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from accelify.convert import convert_paths, convert_source
from accelify.source import Source

KEEPING = """\
import os

import torch


class Keeping(object):
    NAME = "weights.pt"

    def __init__(self, model, step):
        self.model, self.step = model, step

    def save(self, folder):
        torch.save(self.model, os.path.join(folder, self.NAME))

    @classmethod
    def load(cls, folder):
        model = torch.load(os.path.join(folder, cls.NAME), weights_only=False)
        return Keeping(model, 0)

    @classmethod
    def last(cls, folder):
        return cls.load(folder)

    @classmethod
    def name(cls):
        return cls.NAME


def train(model, loader, optimizer):
    for x, y in loader:
        loss = torch.nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
MAIN = """\
import sys

import torch
from torch.utils.data import DataLoader, TensorDataset

from keeping import Keeping, train

torch.manual_seed(0)
if len(sys.argv) > 1:
    model = {call}.model
else:
    model = torch.nn.Linear(4, 1)
loader = DataLoader(TensorDataset(torch.randn(32, 4), torch.randn(32, 1)), batch_size=4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
train(model, loader, optimizer)
Keeping(model, 1).save(".")
print(Keeping.name())
"""


def converted(folder: Path, call: str) -> tuple[str, str]:
    for name, text in (("keeping", KEEPING), ("main", MAIN.replace("{call}", call))):
        (folder / f"{name}.py").write_text(text)
    found = {one.source.text: one for one in convert_paths([folder / "main.py"])}
    for conversion in found.values():
        assert conversion.source.path is not None
        assert conversion.status == "converted", conversion.reason
        Path(conversion.source.path).write_text(conversion.new_text)
    return (folder / "main.py").read_text(), (folder / "keeping.py").read_text()


def test_one_that_is_handed_on_takes_none(tmp_path: Path) -> None:
    main, keeping = converted(tmp_path, "next(map(Keeping.load, sys.argv[1:]))")
    assert "def load(cls, folder):" in keeping
    assert "model = torch.load(os.path.join(folder, cls.NAME), weights_only=False)\n" in keeping
    assert "map(Keeping.load, sys.argv[1:])" in main
    run(tmp_path)
    run(tmp_path, ".")


def run(folder: Path, *arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, "main.py", *arguments], cwd=folder, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()


@pytest.mark.parametrize("call", ["Keeping.last(sys.argv[1])", "Keeping.last(folder=sys.argv[1])"])
def test_a_class_method_takes_a_parameter_of_its_own(tmp_path: Path, call: str) -> None:
    main, keeping = converted(tmp_path, call)
    assert "    def load(cls, accelerator, folder):\n" in keeping
    assert "map_location=accelerator.device)" in keeping
    assert "cls.accelerator" not in keeping
    assert "    def name(cls):\n" in keeping
    assert call.replace("(", "(accelerator, ", 1) in main
    run(tmp_path)
    run(tmp_path, ".")


STEPS = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.line = nn.Linear(size, 1)

    def forward(self, x):
        return self.line(x)

    {decorator}
    def train_on({own}model, optimizer, x, y):
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def main():
    net = Net(4)
    loader = DataLoader(TensorDataset(torch.randn(32, 4), torch.randn(32, 1)), batch_size=4)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for x, y in loader:
        Net.train_on(net, optimizer, x, y)


if __name__ == "__main__":
    main()
"""


@pytest.mark.parametrize(("decorator", "own"), [("@staticmethod", ""), ("@classmethod", "cls, ")])
def test_an_object_keeps_nothing_for_its_static_methods(tmp_path: Path, decorator: str, own: str) -> None:
    (tmp_path / "main.py").write_text(STEPS.format(decorator=decorator, own=own))
    (found,) = convert_paths([tmp_path / "main.py"])
    assert f"def train_on({own}accelerator, model, optimizer, x, y):" in found.new_text
    assert "def __init__(self, size):" in found.new_text
    assert "Net.train_on(accelerator, net, optimizer, x, y)" in found.new_text
    (tmp_path / "main.py").write_text(found.new_text)
    run(tmp_path)


GATHERED = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Trainer:
    def train():
        model = nn.DataParallel(nn.Linear(4, 3).cuda()).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        data = TensorDataset(torch.randn(100, 4), torch.randn(100, 3))
        loader, held = DataLoader(data, batch_size=10), DataLoader(data, batch_size=10)
        Trainer.fit(model, loader, optimizer)
        Trainer.validate(model, held)

    def fit(model, loader, optimizer):
        for x, y in loader:
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), y.cuda()).backward()
            optimizer.step()

    def validate(model, loader):
        seen = []
        with torch.no_grad():
            for x, y in loader:
                output = model(x)
                seen.append(nn.functional.mse_loss(output, y.cuda()))
        print(seen)
"""


def test_functions_without_self_are_static_ones(tmp_path: Path) -> None:
    (tmp_path / "trainer.py").write_text(GATHERED)
    (tmp_path / "run.py").write_text("from trainer import Trainer\n\nTrainer.train()\n")
    found = convert_paths([tmp_path / "run.py"])
    assert [c.status for c in found] == ["converted", "converted"]
    text = found[1].new_text
    assert "prepare(model, optimizer, loader, held)" in text
    assert "def validate(accelerator, model, loader):" in text
    assert "Trainer.validate(accelerator, model, held)" in text
    assert "output, y = accelerator.gather_for_metrics((output, y))" in text


LOADED = """\
import torch
from torch.utils.data import DataLoader


class Model:
    def __init__(self):
        self.net = torch.nn.Linear(4, 1)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)

    def train(self, data):
        for x, y in DataLoader(data, batch_size=8):
            self.optimizer.zero_grad()
            torch.nn.functional.mse_loss(self.net(x), y).backward()
            self.optimizer.step()

    def load({first}):
        print("loading", {first})
        return torch.load({first})


model = Model()
model.train(torch.load("data.pt"))
{use}
"""


@pytest.mark.parametrize("use", ["again = Model.load('net.pt')", ""])
def test_what_a_librarys_function_of_the_same_name_is_given_is_no_object(use: str) -> None:
    """Nor where nobody here calls it."""
    text = convert_source(Source.from_text(LOADED.format(first="path", use=use))).new_text
    assert "prepare(" in text
    assert "path.accelerator" not in text
    used = convert_source(Source.from_text(LOADED.format(first="it", use="model.load()"))).new_text
    assert 'it.accelerator.print("loading", it)' in used
