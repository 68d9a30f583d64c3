"""Trainers that come by `import_module(name)`."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelify.conversion import Conversion
from accelify.convert import convert_project, convert_source
from accelify.project import Imports
from accelify.proving import prove
from accelify.source import Source

TRAINER = """
import torch.nn as nn
class Trainer(object):
    def __init__(self, model, optimizer):
        self.model, self.optimizer = model, optimizer
    def train(self, loader):
        for x, y in loader:
            loss = nn.functional.mse_loss(self.model(x), y)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
"""
MAIN = """
import argparse
import importlib
from importlib import import_module
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
parser = argparse.ArgumentParser()
parser.add_argument("-t", "--trainer-file"{option})
args = parser.parse_args()
loader = DataLoader(TensorDataset(torch.randn(16, 4), torch.randn(16, 1)), batch_size=8)
net = nn.Linear(4, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
{made}
trainer.train(loader)
"""
CLASS = "trainer = import_module({name}).Trainer(net, opt)"


def _convert(folder: Path, made: str, option: str = "") -> list[Conversion]:
    (folder / "plain.py").write_text(TRAINER)
    (folder / "parts").mkdir(exist_ok=True)
    (folder / "parts" / "plain.py").write_text(TRAINER)
    path = folder / "main.py"
    path.write_text(MAIN.format(made=made, option=option))
    return convert_project(Source.read(path))


@pytest.mark.parametrize(
    ("made", "option", "file"),
    [
        (CLASS.format(name='"plain"'), "", "plain.py"),
        (CLASS.format(name="args.trainer_file"), ', default="plain"', "plain.py"),
        (CLASS.format(name="args.trainer_file"), ', choices=["plain", "other"]', "plain.py"),
        (CLASS.format(name='"parts." + args.trainer_file'), ', default="plain"', "parts/plain.py"),
        (CLASS.format(name='f"parts.{args.trainer_file}"'), ', default="plain"', "parts/plain.py"),
        (CLASS.format(name='"parts.{}".format(args.trainer_file)'), ', default="plain"', "parts/plain.py"),
        ('found = importlib.import_module("plain")\ntrainer = found.Trainer(net, opt)', "", "plain.py"),
        ('trainer = getattr(importlib.import_module("plain"), "Trainer")(net, opt)', "", "plain.py"),
    ],
)
def test_a_module_whose_name_is_known(tmp_path: Path, made: str, option: str, file: str) -> None:
    main, trainer = _convert(tmp_path, made, option)
    assert (main.status, trainer.status) == ("converted", "converted"), main.reason
    assert trainer.source.path == tmp_path / file
    assert "self.accelerator.backward(loss)" in trainer.new_text
    assert "(accelerator, net, opt)" in main.new_text
    assert not main.remaining
    found = prove([main, trainer], main)
    # What the option names where it is not set is converted; the engine reads none of those that it may name.
    notes = [note for note in main.notes if "imports by a name" in note]
    assert len(notes) == int("args" in made)
    assert any(one.sink == "backward" for one in found.obligations) is ("args" not in made)


@pytest.mark.parametrize("option", ["", ', default="gone"', ", default=3"])
def test_a_module_whose_name_is_not_known(tmp_path: Path, option: str) -> None:
    (main,) = _convert(tmp_path, CLASS.format(name="args.trainer_file"), option)
    assert main.status == "refused"
    assert main.reason.startswith("its training loop may be in the module that line 14 imports by a name")
    assert [f.code for f in main.remaining] == ["ACC009"]


def test_a_script_that_only_uses_a_model_has_no_loop() -> None:
    text = """
import sys
from importlib import import_module
import torch
model = import_module(sys.argv[1]).Model()
model.train(False)
print(model(torch.randn(3)))
"""
    found = convert_source(Source.from_text(text, Path("/nowhere/show.py")), imports=Imports())
    assert (found.status, found.reason) == ("unchanged", "it has no training loop (no call of backward)")


def test_a_library_that_is_imported_by_name(tmp_path: Path) -> None:
    made = """
optim = importlib.import_module("torch.optim")
adam = optim.Adam(net.parameters())
for x, y in loader:
    (net(x) - y).pow(2).mean().backward()
    adam.step()
trainer = nn.Identity()
"""
    (main,) = _convert(tmp_path, made)
    assert main.status == "converted", main.reason
    assert "net, adam, loader = accelerator.prepare(net, adam, loader)" in main.new_text


def test_a_trainer_that_is_imported_by_name_is_no_entry(tmp_path: Path) -> None:
    _convert(tmp_path, CLASS.format(name="args.trainer_file"), ', default="plain"')
    files = [tmp_path / "main.py", tmp_path / "plain.py"]
    assert Imports().entries(files) == files[:1]


def test_what_a_package_imports_by_a_name_of_the_run_is_named(tmp_path: Path) -> None:
    package = tmp_path / "models"
    package.mkdir()
    (package / "__init__.py").write_text(
        "import importlib\n\n\ndef create(name):\n    made = importlib.import_module('models.' + name + '_model')\n"
        "    return made.Trainer()\n"
    )
    path = tmp_path / "train.py"
    path.write_text("import sys\nfrom models import create\ncreate(sys.argv[1]).train([])\n")
    (found,) = convert_project(Source.read(path))
    assert (found.status, found.reason) == ("unchanged", "it has no training loop (no call of backward)")
    (package / "plain_model.py").write_text(TRAINER)
    (found,) = convert_project(Source.read(path))
    assert found.status == "refused"
    assert found.reason == (
        "line 5 of models/__init__.py imports what it runs by a name that only the run knows, and its training loop "
        "may be in plain_model.py: write the import out"
    )
