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
        ("from .Trainer import *\n", "Trainer", "from pack import Trainer\nTrainer(3).train()\n"),
        ("from pack.Trainer import *\n", "Trainer", "import pack as p\np.Trainer(3).train()\n"),
        ("from .Trainer import *\n", "Trainer", "import pack.Trainer as made\nmade(3).train()\n"),
        ("from .all import *\n", "Trainer", "import pack\npack.Trainer(3).train()\n"),
        ("from .some import *\n", "Trainer", "from pack import Trainer\nTrainer.Trainer(3).train()\n"),
        ("from .listed import *\n", "Trainer", "from pack import Trainer\nTrainer.Trainer(3).train()\n"),
    ],
)
def test_the_class_is_found(tmp_path: Path, package: str, home: str, script: str) -> None:
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "__init__.py").write_text(package)
    (tmp_path / "pack" / f"{home}.py").write_text(TRAINER)
    (tmp_path / "pack" / "all.py").write_text("from .Trainer import *\n")
    (tmp_path / "pack" / "some.py").write_text("from . import Trainer\n")
    (tmp_path / "pack" / "listed.py").write_text(
        "__all__ = ['other']\ndef Trainer(): pass\ndef other(): pass\n"
    )
    if home == "work":  # which the name does not mean
        (tmp_path / "pack" / "Trainer.py").write_text("Trainer = None\n")
    (tmp_path / "train.py").write_text(script)
    found = convert_project(Source.read(tmp_path / "train.py"))
    assert found[0].status == "converted", found[0].reason
    changed = next(one for one in found if one.source.path is not None and one.source.path.stem == home)
    assert "self.accelerator.backward(loss)" in changed.new_text


def test_a_folder_that_the_script_adds_goes_before_those_that_are_guessed(tmp_path: Path) -> None:
    """`solver/solver.py`, on the script's path, and the empty package `solver` in the project's root."""
    for folder in ("bin", "solver"):
        (tmp_path / folder).mkdir()
    (tmp_path / "setup.py").write_text("")
    (tmp_path / "solver" / "__init__.py").write_text("")
    (tmp_path / "solver" / "solver.py").write_text(TRAINER)
    script = tmp_path / "bin" / "train.py"
    script.write_text(
        "import os\nimport sys\n\nsys.path.insert(0, os.path.join(os.path.dirname(__file__), '..', 'solver'))\n"
        "from solver import Trainer\n\nTrainer(3).train()\n"
    )
    found = convert_project(Source.read(script))
    assert found[0].status == "converted", found[0].reason


CHOSEN = """\
import argparse
import torch
from runners import *

parser = argparse.ArgumentParser()
parser.add_argument("--runner", required=True)
args = parser.parse_args()
torch.manual_seed(1)
runner = {choice}(3)
runner.train()
"""


@pytest.mark.parametrize("choice", ["eval(args.runner)", "globals()[args.runner]"])
def test_a_class_that_only_the_run_knows_is_told(tmp_path: Path, choice: str) -> None:
    (tmp_path / "runners").mkdir()
    (tmp_path / "runners" / "__init__.py").write_text("from runners.one import *\n")
    (tmp_path / "runners" / "one.py").write_text(TRAINER)
    (tmp_path / "train.py").write_text(CHOSEN.format(choice=choice))
    (found,) = convert_project(Source.read(tmp_path / "train.py"))
    assert found.status == "refused"
    assert "line 9 picks what it runs by a name that only the run knows" in found.reason


@pytest.mark.parametrize(("method", "status"), [("learn_batch(data)", "refused"), ("eval()", "unchanged")])
def test_a_class_out_of_a_package_by_two_names_of_the_run(tmp_path: Path, method: str, status: str) -> None:
    (tmp_path / "agents").mkdir()
    (tmp_path / "agents" / "__init__.py").write_text("from . import one\n")
    (tmp_path / "agents" / "one.py").write_text(TRAINER)
    lines = [
        "import sys",
        "import agents",
        "data = [1]",
        "agent = agents.__dict__[sys.argv[1]].__dict__[sys.argv[2]](3)",
        f"agent.{method}",
    ]
    (tmp_path / "train.py").write_text("\n".join(lines))
    (found,) = convert_project(Source.read(tmp_path / "train.py"))
    assert found.status == status
    assert (status == "refused") == (
        "line 4 picks what it runs by a name that only the run knows" in found.reason
    )


def test_a_class_of_the_name_of_its_file_that_cannot_be_read(tmp_path: Path) -> None:
    """What `pack/__init__.py` takes of it leads nowhere, rather than round and round."""
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "__init__.py").write_text("from .voc import voc\nfrom .Trainer import Trainer\n")
    (tmp_path / "pack" / "voc.py").write_text("class voc:\n    def show(self):\n        print 'Python 2'\n")
    (tmp_path / "pack" / "Trainer.py").write_text(TRAINER)
    (tmp_path / "train.py").write_text("from pack import Trainer, voc\nvoc()\nTrainer(3).train()\n")
    found = convert_project(Source.read(tmp_path / "train.py"))
    assert found[0].status == "converted", found[0].reason


KEEP = """\
import os
import time


class keep:
    def __init__(self, name):
        self.path = self.made(name)

    def made(self, name):
        path = os.path.join("runs", name + time.strftime("%H%M%S"))
        os.makedirs(path)
        return path

    def tell(self, text):
        with open(os.path.join(self.path, "log.txt"), "a") as file:
            file.write(text)
"""


def test_what_a_class_of_its_module_s_name_writes_is_seen(tmp_path: Path) -> None:
    (tmp_path / "keep").mkdir()
    (tmp_path / "keep" / "__init__.py").write_text("from keep.keep import *\n")
    (tmp_path / "keep" / "keep.py").write_text(KEEP)
    lines = "kept = kp.keep('run')\ntrainer = Trainer(3)\ntrainer.train()\nkept.tell('done')\n"
    (tmp_path / "train.py").write_text(f"import keep as kp\n{TRAINER}\n{lines}")
    (found,) = convert_project(Source.read(tmp_path / "train.py"))
    assert "if trainer.accelerator.is_main_process:\n    kept.tell('done')\n" in found.new_text
    (said,) = [one.message for one in found.remaining if one.code == "ACC210"]
    assert "os.makedirs in keep.py, line 11" in said


@pytest.mark.parametrize(
    ("module", "call", "status"),
    [
        (TRAINER, "hydra.utils.instantiate(cfg.agent)", "refused"),
        ("class Trainer:\n    pass\n", "hydra.utils.instantiate(cfg.agent)", "unchanged"),
        (TRAINER, "hydra.utils.get_class(cfg.agent)", "unchanged"),
    ],
)
def test_a_class_that_a_configuration_names(tmp_path: Path, module: str, call: str, status: str) -> None:
    (tmp_path / "agent.py").write_text(module)
    (tmp_path / "train.py").write_text(
        f"import hydra\nimport torch\ndef main(cfg):\n    agent = {call}\n    agent.run(3)\n"
    )
    (found,) = convert_project(Source.read(tmp_path / "train.py"))
    assert found.status == status
    assert ("line 4 makes what the configuration names" in (found.reason or "")) is (status == "refused")
    assert ("in agent.py" in (found.reason or "")) is (status == "refused")
