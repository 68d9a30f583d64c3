"""Settings that a file fills as the script runs: the same on all processes, and not what they are by default."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelify.knowledge import Knowledge
from accelify.obligations import validate
from tests.proving.several_programs import named

HEAD = "import argparse, sys, yaml\n"
WAYS = {
    "attributes of a class": (
        """
class Settings:
    sync = False

    def load(self, path):
        for key, value in yaml.safe_load(open(path)).items():
            setattr(self, key, value)


cfg = Settings()
cfg.load(sys.argv[1])
""",
        "cfg.sync",
    ),
    "attributes by their dictionary": (
        """
class Settings:
    sync = False

    def load(self, path):
        self.__dict__.update(yaml.safe_load(open(path)))


cfg = Settings()
cfg.load(sys.argv[1])
""",
        "cfg.sync",
    ),
    "a dictionary over another": (
        'cfg = {"sync": False}\ncfg = {**cfg, **yaml.safe_load(open(sys.argv[1]))}\n',
        'cfg["sync"]',
    ),
    "a dictionary that is updated": (
        'cfg = {"sync": False}\ncfg.update(yaml.safe_load(open(sys.argv[1])))\n',
        'cfg["sync"]',
    ),
    "yacs": (
        "from yacs.config import CfgNode\ncfg = CfgNode()\ncfg.sync = False\ncfg.merge_from_file(sys.argv[1])\n",
        "cfg.sync",
    ),
    "options of the command line for it": (
        "from yacs.config import CfgNode\ncfg = CfgNode()\ncfg.sync = False\ncfg.merge_from_list(sys.argv[1:])\n",
        "cfg.sync",
    ),
    "OmegaConf": (
        """
from omegaconf import OmegaConf

cfg = OmegaConf.merge(OmegaConf.create({"sync": False}), OmegaConf.load(sys.argv[1]))
""",
        "cfg.sync",
    ),
    "options": (
        """
args = argparse.ArgumentParser().parse_args()
args.sync = False
vars(args).update(yaml.safe_load(open(sys.argv[1])))
""",
        "args.sync",
    ),
}


@pytest.mark.parametrize(("text", "flag"), WAYS.values(), ids=WAYS)
def test_all_processes_have_the_same_settings(text, flag, tmp_path):
    group = f'dist.init_process_group("gloo")\nif {flag}:\n    dist.barrier()\n'
    assert not named(HEAD + text + group, tmp_path)


@pytest.mark.parametrize(("text", "flag"), WAYS.values(), ids=WAYS)
def test_what_stands_behind_settings_is_reached(text, flag, tmp_path):
    group = f"""
dist.init_process_group("gloo")
if {flag}:
    if dist.get_rank() == 0:
        dist.barrier()
"""
    assert named(HEAD + text + group, tmp_path) == [("ACC704", "dist.barrier()")]


def test_settings_that_no_file_fills(tmp_path):
    text = """
cfg = {"sync": False}
cfg = {**cfg, **{"lr": 0.1}}
dist.init_process_group("gloo")
if cfg["sync"]:
    if dist.get_rank() == 0:
        dist.barrier()
"""
    assert not named(HEAD + text, tmp_path)


MODEL = """
import torch
import torchvision


class Small(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torchvision.models.squeezenet1_1(pretrained=True)
"""
SCRIPT = """
import json
import models
from accelerate import Accelerator


class Settings:
    model = "Small"

    def take(self, found):
        for name, value in found.items():
            setattr(self, name, value)


settings = Settings()
settings.take(json.load(open("settings.json")))
accelerator = Accelerator()
model = accelerator.prepare(getattr(models, settings.model)())
"""


def test_a_default_still_names_a_class(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "__init__.py").write_text("from .small import Small\n")
    (tmp_path / "models" / "small.py").write_text(MODEL)
    found = validate(SCRIPT, tmp_path / "train.py", Knowledge(), checks=True)
    assert "network.get" in [one.sink for one in found.obligations]
