"""Which modules of its project a script loads."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelify.analysis.interpretation.interpreter import Interpreter
from accelify.analysis.program import Program
from accelify.analysis.script import ScriptModel
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
        ("import net\nnet.make()", {"net"}),
        ("import net\nprint(net)", {"net"}),
        ("from net import make as m\nm()", {"net"}),
        ("import helpers\nhelpers.size", {"helpers", "helpers.deep"}),
        ("import helpers\nhelpers.other.x", {"helpers.other"}),
        ("import helpers\nprint(vars(helpers))", {"helpers", "helpers.deep", "helpers.other"}),
        ("from helpers.deep import size\nsize", {"helpers.deep"}),
        ("from net import *\nprint(size)", {"net", "helpers.deep"}),
        ("def f():\n    from net import make\n    return make()", {"net"}),
        ("import torch, numpy, accelify, absent, broken\ntorch, numpy, accelify, absent, broken", set()),
        ("import net, helpers", set()),  # nothing of them is used
    ],
)
def test_modules(project: Path, text: str, modules: set[str]) -> None:
    assert set(program(project, text).modules) - {"__main__"} == modules


def test_only_what_is_used_of_a_module_is_looked_at(project: Path) -> None:
    (project / "many.py").write_text(
        "import helpers.other as o\nfrom net import make\n\n\ndef one():\n    return two()\n\n\n"
        "def two():\n    return 2\n\n\ndef three():\n    return make(o)\n\n\nclass Four:\n    pass\n\n\nfour = Four()\n"
    )
    found = program(project, "import many\nmany.one()")
    assert set(found.modules) == {"__main__", "many"}
    used = found.modules["many"].used
    assert used is not None
    assert {getattr(node, "name", "") for node in used} == {"one", "two", "Four"}


def test_modules_that_may_train_are_looked_at_as_a_whole(project: Path) -> None:
    (project / "fit.py").write_text("def fit(x):\n    x.backward()\n\n\ndef other():\n    pass\n")
    assert program(project, "import fit\nfit.fit(1)").modules["fit"].used is None


def test_a_package_in_src(project: Path) -> None:
    (project / "pyproject.toml").write_text("")
    (project / "src" / "kit").mkdir(parents=True)
    (project / "src" / "kit" / "__init__.py").write_text("from kit.part import one\n")
    (project / "src" / "kit" / "part.py").write_text("one = 1\n")
    (project / "tools").mkdir()
    assert "kit.part" in program(project, "from kit import one\none", "tools/run.py").modules


def test_a_relative_import_of_a_package_member(project: Path) -> None:
    found = program(project, "from .deep import size\nsize\n", "helpers/run.py")
    assert "helpers.deep" in found.modules
    assert found.entry.package == "helpers"


def test_without_a_path_nothing_is_followed() -> None:
    assert set(Program(Tree("import net")).modules) == {"__main__"}


def test_values_come_through_imports(project: Path) -> None:
    found = program(project, "from net import *\nmodel = make()\n")
    interpreter = Interpreter(found)
    values = interpreter.variables[(found.entry.scopes.module, "model")]
    assert {getattr(v, "kind", "") for v in values} == {"model"}


@pytest.mark.parametrize("text", ["import foo\nfoo.foo()", "from foo import foo\nfoo()"])
def test_a_class_of_the_name_of_its_file_and_folder(tmp_path: Path, text: str) -> None:
    (tmp_path / "foo").mkdir()
    (tmp_path / "foo" / "foo.py").write_text("class foo:\n    pass\n")
    found = program(tmp_path, text, "foo/main.py")
    assert set(found.modules) == {"__main__", "foo"}
    assert {getattr(node, "name", "") for node in found.modules["foo"].used or ()} == {"foo"}


def test_modules_that_keep_what_is_trained_come_in_the_order_of_their_imports(tmp_path: Path) -> None:
    """Places in several modules are compared by it: which of them is named is the same in every run."""
    names, text = [f"keeps_{i}" for i in range(6)], "import torch\n"
    for name in names:
        (tmp_path / f"{name}.py").write_text(
            "import torch\n\n\nclass Keeps:\n    def __init__(self):\n        self.net = torch.nn.Linear(2, 2)\n"
            "        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)\n"
        )
        text += f"from {name} import Keeps as {name.title()}\n{name} = {name.title()}()\n"
    text += "for x in data:\n" + "".join(
        f"    {n}.net(x).sum().backward()\n    {n}.optimizer.step()\n" for n in names
    )
    script = ScriptModel(Tree(text), tmp_path / "train.py", project=True)
    assert [module.name for module in script.modules[1:]] == names
