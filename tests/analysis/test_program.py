"""Which modules of its project a script loads."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelify.analysis.interpreter import Interpreter
from accelify.analysis.program import Program
from accelify.analysis.syntax import Tree

FILES = {
    "net.py": "import torch.nn as nn\nfrom helpers.deep import *\ndef make():\n    return nn.Linear(2, 2)\n",
    "helpers/__init__.py": "from .deep import size\nfrom . import other\n",
    "helpers/deep.py": "size = 3\n",
    "helpers/other.py": "",
    "broken.py": "def f(:\n",
    "torch.py": "backward = 1\n",
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def program(project: Path, text: str, name: str = "train.py") -> Program:
    return Program(Tree(text), project / name)


@pytest.mark.parametrize(
    ("text", "modules"),
    [
        ("import net", {"net", "helpers.deep"}),
        ("from net import make as m", {"net", "helpers.deep"}),
        ("import helpers", {"helpers", "helpers.deep", "helpers.other"}),
        ("from helpers.deep import size", {"helpers.deep"}),
        ("import torch, numpy, accelify, absent, broken", set()),
    ],
)
def test_modules(project: Path, text: str, modules: set[str]) -> None:
    assert set(program(project, text).modules) - {"__main__"} == modules


def test_a_relative_import_of_a_package_member(project: Path) -> None:
    found = program(project, "from .deep import size\n", "helpers/run.py")
    assert "helpers.deep" in found.modules
    assert found.entry.package == "helpers"


def test_without_a_path_nothing_is_followed() -> None:
    assert set(Program(Tree("import net")).modules) == {"__main__"}


def test_values_come_through_imports(project: Path) -> None:
    found = program(project, "from net import *\nmodel = make()\n")
    interpreter = Interpreter(found)
    values = interpreter.variables[(found.entry.scopes.module, "model")]
    assert {getattr(v, "kind", "") for v in values} == {"model"}
