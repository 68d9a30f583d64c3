"""Objects of classes that a configuration of Hydra names."""

from __future__ import annotations

import pytest

from accelify.conversion import ConvertOptions
from accelify.convert import convert_project
from accelify.project import Imports
from accelify.proving import checked
from accelify.source import Source

SCRIPT = """\
import hydra
import torch
from accelerate import Accelerator
from hydra.utils import instantiate
@hydra.main(version_base=None, config_path="configs", config_name="config")
def main(cfg):
    accelerator = Accelerator()
    model = accelerator.prepare(torch.nn.Linear(4, 1))
    instantiate(cfg.trainer, model, accelerator=accelerator).save()
main()
"""
MODULE = """\
class Quiet:
    def __init__(self, model, accelerator, path="model.pt"):
        self.model, self.accelerator, self.path = model, accelerator, path
    def save(self):
        pass
class Once(Quiet):
    def save(self):
        self.accelerator.save(self.accelerator.unwrap_model(self.model).state_dict(), self.path)
class All(Quiet):
    def save(self):
        print("saved")
"""


def lines_named(folder, files):
    """The lines of the class's module that check names."""
    for name, text in {
        "train.py": SCRIPT,
        "pack/trainers.py": MODULE,
        "pack/__init__.py": "",
        **files,
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    found = checked(convert_project(Source.read(folder / "train.py"), ConvertOptions(), Imports())[0])
    return [MODULE.splitlines()[one.line - 1].strip() for one in found if "trainers" in str(one.path)]


def target(name):
    return f"_target_: pack.trainers.{name}\n"


CHOSEN = {"configs/trainer/a.yaml": target("Once"), "configs/trainer/b.yaml": target("All") + "lr: 1\n"}


@pytest.mark.parametrize(
    ("files", "is_named"),
    [
        ({"configs/config.yaml": "trainer:\n  lr: 0.1\n  " + target("All")}, True),
        ({"configs/config.yaml": "trainer:\n  lr: 0.1\n  " + target("Once")}, False),
        ({"configs/config.yaml": "trainer:\n  lr: 0.1\nother:\n  " + target("All")}, False),
        ({"configs/trainer/a.yml": target("All")}, True),
        ({**CHOSEN, "configs/config.yaml": "defaults:\n  - _self_\n  - trainer: b\n"}, True),
        ({**CHOSEN, "configs/config.yaml": "defaults:\n  - trainer: a\n"}, False),
        (CHOSEN, False),  # it depends on the command line
    ],
)
def test_they_are_entered(files, is_named, tmp_path):
    assert lines_named(tmp_path, files) == ['print("saved")'] * is_named
