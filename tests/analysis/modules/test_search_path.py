"""Folders that a project puts on `sys.path`: its modules are found there, whichever file says so."""

from __future__ import annotations

import os
import sysconfig
from pathlib import Path

import pytest

from accelify.analysis.modules.search_path import is_of_python, module_file, roots_of
from accelify.analysis.program import Program
from accelify.analysis.syntax import Tree
from accelify.convert import convert_paths

ADD = """
import os, os.path as osp, sys


def add(path):
    if path not in sys.path:
        sys.path.insert(0, path)


"""
ROOT = "osp.abspath(osp.dirname(osp.dirname(__file__)))"
USE = "import net\nnet.make()\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Scripts in `tools`, and beside that folders that Python does not look into by itself."""
    for folder in ("tools/inner", "lib", "other"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "lib" / "net.py").write_text("def make():\n    return 1\n")
    (tmp_path / "setup.py").write_text("")
    return tmp_path


def finds(project: Path, script: str) -> bool:
    """Whether a script in `tools` that uses the module is read with it."""
    return "net" in Program(Tree(script + USE), project / "tools" / "train.py").modules


@pytest.mark.parametrize(
    "lines",
    [
        f'add(osp.join({ROOT}, "lib"))\n',
        'this = osp.dirname(__file__)\nplace = osp.join(this, "..", "lib")\nadd(place)\n',
        f'sys.path.append({ROOT} + "/lib")\n',
        f'sys.path.append("%s/lib" % {ROOT})\n',
        f'ROOT = {ROOT}\nsys.path.append(f"{{ROOT}}/lib")\n',
        "R = osp.abspath(__file__)\nR = osp.dirname(R)\nR = osp.dirname(R)\nadd(osp.join(R, 'lib'))\n",
        'from pathlib import Path\nsys.path.append(str(Path(__file__).resolve().parent.parent / "lib"))\n',
        'from pathlib import Path\nsys.path.append(str(Path(__file__).parents[1].joinpath("lib")))\n',
        f'sys.path = [osp.join({ROOT}, "lib")] + sys.path\n',
        f'for name in ["other", "lib"]:\n    sys.path.append(osp.join({ROOT}, name))\n',
        "sys.path.extend([os.path.join(os.getcwd(), 'lib')])\n",
        "sys.path += ['./lib']\n",  # from the project's root, where it is started
    ],
)
@pytest.mark.parametrize("beside", [False, True])
def test_places_are_read(project: Path, lines: str, beside: bool) -> None:
    assert not finds(project, "")
    (project / "tools" / "_places.py").write_text(ADD + lines)
    assert finds(project, "from _places import *\n" if beside else ADD + lines)


@pytest.mark.parametrize(
    "lines",
    [
        'add(osp.join(os.environ["HOME"], "lib"))\n',
        'add(osp.join(osp.dirname(__file__), "absent"))\n',
        'print(", ".join(["..", "lib"]), "lib")\n',
        "PLACE = osp.join(PLACE, 'lib')\nadd(PLACE)\n",
        f"def unused(path):\n    sys.path.append(osp.join({ROOT}, path))\n",
        "print 'Python 2', sys.path\n",
    ],
)
def test_other_places_are_not(project: Path, lines: str) -> None:
    (project / "tools" / "_places.py").write_text(ADD + lines)
    assert not finds(project, "import _places\n")


def test_modules_in_packages_say_so_too(project: Path) -> None:
    (project / "tools" / "inner" / "places.py").write_text(
        ADD + "add(osp.join(osp.dirname(osp.abspath(__file__)), '../../lib'))\n"
    )
    assert finds(project, "import os, inner.places\n")
    assert finds(project, "from inner import places as p\n")


LOOP = """
def fit(net, optimizer, batches):
    for x in batches:
        loss = net(x.cuda()).mean()
        loss.backward()
        optimizer.step()
"""
SCRIPT = """
import _places
import torch
from torch.utils.data import DataLoader
from loops import fit

net = torch.nn.Linear(3, 1).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
fit(net, optimizer, DataLoader(torch.randn(30, 3)))
"""


def test_the_modules_there_are_converted_with_the_script(project: Path) -> None:
    (project / "tools" / "_places.py").write_text(ADD + f'add(osp.join({ROOT}, "lib"))\n')
    (project / "tools" / "train.py").write_text(SCRIPT)
    (project / "lib" / "loops.py").write_text(LOOP)
    train, loops = convert_paths([project / "tools" / "train.py"])
    assert "accelerator.prepare(" in train.new_text
    assert "accelerator.backward(loss)" in loops.new_text


def test_modules_beside_the_folder_of_a_package_whose_project_is_a_package_too(project: Path) -> None:
    for folder in (project, project / "tools", project / "lib"):
        (folder / "__init__.py").write_text("")
    script = "from lib import net\nnet.make()\n"
    assert "lib.net" in Program(Tree(script), project / "tools" / "train.py").modules


def test_a_package_in_a_folder_that_is_none_itself(project: Path) -> None:
    """`experiments/cars/train.py`, which runs by `python -m experiments.cars.train` from the project's root."""
    inner = project / "experiments" / "cars"
    inner.mkdir(parents=True)
    for file in (inner / "__init__.py", inner / "net.py", project / "experiments" / "common.py"):
        file.write_text("def make():\n    return 1\n")
    absolute = "from experiments.cars.net import make\nfrom experiments.common import make as other\n"
    relative = "from .net import make\nfrom ..common import make as other\n"
    for script in (absolute, relative):
        modules = Program(Tree(f"{script}make()\nother()\n"), inner / "train.py").modules
        assert {"experiments.cars.net", "experiments.common"} <= set(modules)


def test_no_root_is_guessed_above_a_package_without_one(tmp_path: Path) -> None:
    inner = tmp_path / "experiments" / "cars"
    inner.mkdir(parents=True)
    (inner / "__init__.py").write_text("")
    assert roots_of(inner / "train.py") == [inner.resolve(), inner.resolve().parent]


@pytest.mark.parametrize(
    ("script", "found"), [("from tools.net import make\n", True), ("import toolset\n", False)]
)
def test_a_folder_around_a_package_that_the_script_calls_by_its_name(
    script: str, found: bool, tmp_path: Path
) -> None:
    inner = tmp_path / "tools" / "train"
    inner.mkdir(parents=True)
    for file in (inner / "__init__.py", inner.parent / "net.py"):
        file.write_text("def make():\n    return 1\n")
    (inner / "run.py").write_text(script)
    assert (tmp_path.resolve() in roots_of(inner / "run.py")) is found


@pytest.mark.parametrize(
    ("told", "found"), [("{0}/other:{0}/lib", True), ("{0}/lib:", True), ("{0}/other", False), ("", False)]
)
def test_the_folders_of_the_environment(
    project: Path, monkeypatch: pytest.MonkeyPatch, told: str, found: bool
) -> None:
    monkeypatch.setenv("PYTHONPATH", told.format(project).replace(":", os.pathsep))
    assert finds(project, "") is found


def test_the_folders_of_the_environment_that_lie_elsewhere_are_not_looked_into(
    project: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "net.py").write_text("def make():\n    return 1\n")
    monkeypatch.setenv("PYTHONPATH", str(elsewhere))
    assert not finds(project, "")


def test_python_s_library_is_no_project_and_what_is_installed_below_it_can_be() -> None:
    library = Path(sysconfig.get_path("stdlib")).resolve()
    assert (library / "json" / "tool.py").is_file()
    assert module_file(["json", "tool"], [library]) is None
    assert module_file(["decoder"], [library / "json"]) is None
    assert not is_of_python(library / "site-packages")
    assert not is_of_python(library.parent)


@pytest.mark.parametrize("mark", ["", "setup.py"])
def test_a_project_that_is_a_package_itself(mark: str, tmp_path: Path) -> None:
    """Without a mark of where it begins, its modules may be run from within it; a package of a project is none."""
    project = tmp_path / "above" / "around" / "more" / "copy"
    for folder in ("main", "train"):
        (project / folder).mkdir(parents=True)
        (project / folder / "__init__.py").touch()
    (project / "__init__.py").touch()
    if mark:
        (project.parent / mark).touch()
    assert (module_file(["train"], roots_of(project / "main" / "run.py")) is None) == bool(mark)


@pytest.mark.parametrize(
    ("place", "found"),
    [
        ("tools/transformers/__init__.py", True),
        ("tools/transformers/words.py", True),
        ("transformers/words.py", False),  # the library's own repository
    ],
)
def test_a_folder_beside_the_script_with_the_name_of_a_library(
    place: str, found: bool, project: Path
) -> None:
    for name in (place, Path(place).with_name("words.py")):
        (project / name).parent.mkdir(exist_ok=True)
        (project / name).write_text("def make():\n    return 1\n")
    script = "from transformers.words import make\nfrom torch.utils.data import DataLoader\nmake()\n"
    modules = Program(Tree(script), project / "tools" / "train.py").modules
    assert ("transformers.words" in modules) == found
    assert not any(name.startswith("torch") for name in modules)
