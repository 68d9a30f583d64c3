"""Modules that several scripts share: each script's own functions, and what they convert to together."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import Tree
from accelify.conversion import Conversion
from accelify.convert import convert_paths
from accelify.merged_edits import merged

LOOPS = """\
def plain(loader, model, optimizer, criterion):
    for x, y in loader:
        loss = criterion(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    told(loss)


def distilled(loader, models, optimizer, criterion):
    student, teacher = models
    for x, _ in loader:
        loss = criterion(student(x), teacher(x).detach())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    told(loss)


def told(loss):
    print(loss.item())


def never(model, x):
    model(x.cuda()).sum().backward()
    print("never")
"""
TRAIN = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from loops import {name}

teacher, model = nn.Linear(4, 2), nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(torch.randn(8, 4), torch.randint(0, 2, (8,))), batch_size=2)
{name}(loader, {model}, optimizer, nn.MSELoss())
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "loops.py").write_text(LOOPS)
    (tmp_path / "student.py").write_text(TRAIN.format(name="distilled", model="(model, teacher)"))
    (tmp_path / "teacher.py").write_text(TRAIN.format(name="plain", model="model"))
    return tmp_path


def convert(folder: Path, *names: str) -> dict[str, Conversion]:
    found = convert_paths([folder / name for name in names])
    return {c.source.path.name: c for c in found if c.source.path is not None}


def test_a_script_converts_only_what_it_comes_to(project: Path) -> None:
    found = convert(project, "student.py")
    text = found["loops.py"].new_text
    assert "def distilled(accelerator, loader, models, optimizer, criterion):" in text
    assert text.count("accelerator.backward(loss)") == 1
    assert text.rpartition("def never")[2] == LOOPS.rpartition("def never")[2]


def test_what_another_script_calls_too_keeps_the_group_from_breaking_it(project: Path) -> None:
    (project / "teacher.py").write_text(TRAIN.format(name="distilled", model="(model, teacher)"))
    alone = convert(project, "student.py")["loops.py"].new_text
    assert "def distilled(loader, models, optimizer, criterion, accelerator=None):" in alone
    both = convert(project, "student.py", "teacher.py")
    assert "def distilled(accelerator, loader" in both["loops.py"].new_text
    assert not [f for c in both.values() for f in c.remaining if f.code == "ACC409"]


@pytest.mark.parametrize(
    ("imports", "call", "known"),
    [
        ("import lib", "lib.distilled", True),
        ("from lib import plain, distilled", "distilled", True),
        ("from lib import *", "distilled", True),
        ("import lib\ndistilled = print", "distilled", False),
    ],
)
def test_who_calls_it_by_way_of_a_package_goes_on_too(
    tmp_path: Path, imports: str, call: str, known: bool
) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "__init__.py").write_text("from .inner import *\n")
    (tmp_path / "lib" / "inner").mkdir()
    (tmp_path / "lib" / "inner" / "__init__.py").write_text("from lib.inner.loops import distilled, plain\n")
    (tmp_path / "lib" / "inner" / "loops.py").write_text(LOOPS)
    text = TRAIN.format(name="distilled", model="(model, teacher)")
    (tmp_path / "student.py").write_text(text.replace("from loops", "from lib"))
    (tmp_path / "teacher.py").write_text(f"{imports}\n{call}([], None, None, None)\n")
    found = convert(tmp_path, "student.py")
    assert ("distilled(accelerator, " in found["student.py"].new_text) is not known
    assert ("accelerator=accelerator)" in found["student.py"].new_text) is known


def test_a_class_that_is_derived_elsewhere_makes_its_own(tmp_path: Path) -> None:
    (tmp_path / "base.py").write_text(
        "import torch\n\n\nclass Engine:\n    def __init__(self, config):\n"
        "        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=config)\n\n"
        "    def step(self, x):\n        self.model(x).sum().backward()\n        self.optimizer.step()\n"
    )
    for name in ("small", "large"):
        (tmp_path / f"{name}.py").write_text(
            "from torch import nn\nfrom base import Engine\n\n\nclass Own(Engine):\n"
            "    def __init__(self, config):\n        self.model = nn.Linear(4, 2)\n        super().__init__(config)\n"
        )
    (tmp_path / "train.py").write_text(
        "import torch\nfrom small import Own\n\nOwn(0.1).step(torch.randn(1, 4))\nprint('done')\n"
    )
    found = convert(tmp_path, "train.py")
    assert "super().__init__(config, accelerator=self.accelerator)" in found["small.py"].new_text
    assert "def __init__(self, config, accelerator=None):" in found["base.py"].new_text


@pytest.mark.parametrize("own", ["'adam'", "self.model.eval()"])  # the second file is of the group
def test_a_class_that_is_derived_without_a_making_of_its_own_is_made_by_others(
    tmp_path: Path, own: str
) -> None:
    """The file that derives it needs nothing; one that makes an object of it does."""
    (tmp_path / "base.py").write_text(
        "import torch\nfrom torch import nn\n\n\nclass Engine:\n    def __init__(self, rate):\n"
        "        self.model = nn.Linear(4, 2)\n"
        "        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=rate)\n\n"
        "    def step(self, x):\n        self.model(x).sum().backward()\n        self.optimizer.step()\n"
    )
    (tmp_path / "small.py").write_text(
        "from base import Engine\n\n\nclass Small(Engine):\n    def show(self):\n"
        f"        return {own}\n\n\nclass Kept:\n    def __init__(self):\n        pass\n"
    )
    trains = "import torch\nfrom small import Small\n\nSmall(0.1).step(torch.randn(1, 4))\nprint('done')\n"
    (tmp_path / "train.py").write_text(trains)

    assert "Small(accelerator, 0.1)" in convert(tmp_path, "train.py")["train.py"].new_text
    (tmp_path / "again.py").write_text(trains)
    assert "Small(0.1, accelerator=accelerator)" in convert(tmp_path, "train.py")["train.py"].new_text


def test_training_loops_of_other_scripts_are_no_evaluations(project: Path) -> None:
    found = convert(project, "teacher.py")
    assert not [f for c in found.values() for f in c.remaining if f.code.startswith("ACC30")]


def test_files_named_together_are_one_group(project: Path) -> None:
    loops = LOOPS.replace("told(loss)", "pass").replace("def pass:", "def told(loss):")
    (project / "loops.py").write_text(loops)
    found = convert(project, "student.py", "teacher.py", "loops.py")
    assert {name: c.status for name, c in found.items()} == dict.fromkeys(found, "converted")
    text = found["loops.py"].new_text
    assert "def plain(accelerator, " in text
    assert "def distilled(accelerator, " in text
    assert text.count("accelerator.backward(loss)") == 2
    assert "accelerator, loader, model" in found["teacher.py"].new_text


def test_one_after_the_other_gives_the_same(project: Path) -> None:
    loops = LOOPS.replace("told(loss)", "pass").replace("def pass:", "def told(loss):")
    (project / "loops.py").write_text(loops)
    together = convert(project, "student.py", "teacher.py")["loops.py"].new_text
    for name in ("student.py", "teacher.py"):
        for conversion in convert(project, name).values():
            assert conversion.source.path is not None
            conversion.source.path.write_text(conversion.new_text)
    assert (project / "loops.py").read_text() == together
    assert {c.status for c in convert(project, "student.py", "teacher.py").values()} == {"unchanged"}


def test_functions_that_are_looked_up_by_name_count_as_called(project: Path) -> None:
    path = project / "student.py"
    for text, dormant in (("", {"plain", "never"}), ("import loops\ngetattr(loops, 'nev' + 'er')\n", set())):
        script = ScriptModel(Tree(path.read_text() + text), path, project=True)
        assert {scope.name for scope in script.dormant} == dormant


def test_what_only_other_scripts_come_to_is_left_to_them(project: Path) -> None:
    path = project / "loops.py"
    kept = "def kept(model, path):\n    with open(path, 'w') as f:\n        f.write(str(model))\n"
    path.write_text(f"{path.read_text()}\n\n{kept}")
    assert kept in convert(project, "student.py")["loops.py"].new_text


def test_a_module_with_loops_says_who_has_what_they_train(project: Path) -> None:
    assert convert(project, "loops.py")["loops.py"].status == "refused"


def test_a_teacher_that_prepare_does_not_place_keeps_the_script_where_it_ran(project: Path) -> None:
    for path in (project / "student.py", project / "teacher.py"):
        made = "DataLoader(TensorDataset(torch.randn(8, 4), torch.randint(0, 2, (8,))), batch_size=2)"
        path.write_text(path.read_text().replace(made, "DataLoader(list(range(8)))"))
    assert "Accelerator(cpu=True)" in convert(project, "student.py")["student.py"].new_text
    assert "Accelerator()" in convert(project, "teacher.py")["teacher.py"].new_text


def test_a_list_of_modules_is_prepared_when_it_is_filled(tmp_path: Path) -> None:
    script = TRAIN.format(name="distilled", model="(model, teacher)")
    script = script.replace(
        "optimizer = torch.optim.SGD(model",
        "trained = nn.ModuleList([])\ntrained.append(model)\noptimizer = torch.optim.SGD(trained",
    )
    (tmp_path / "train.py").write_text(script)
    (tmp_path / "loops.py").write_text(LOOPS)
    text = convert(tmp_path, "train.py")["train.py"].new_text
    assert text.index("trained.append(model)") < text.index("accelerator.prepare(")


def test_the_module_that_uses_a_library_is_named(project: Path) -> None:
    loops = project / "loops.py"
    loops.write_text("import deepspeed\n" + LOOPS)
    assert convert(project, "student.py")["student.py"].reason == "its module loops.py uses DeepSpeed already"
    loops.write_text(LOOPS.replace("def never(model, x):", "def never(model, x):\n    import deepspeed\n"))
    assert convert(project, "student.py")["student.py"].status == "converted"


def test_a_loop_of_a_library_that_lies_in_the_same_repository(project: Path) -> None:
    (project / "ignite").mkdir()
    (project / "loops.py").rename(project / "ignite" / "loops.py")
    (project / "ignite" / "__init__.py").write_text("")
    script = project / "student.py"
    script.write_text(script.read_text().replace("from loops", "from ignite.loops"))
    reason = convert(project, "student.py")["student.py"].reason
    assert reason == "it uses PyTorch Ignite already: its training loop is in `ignite.loops`"


def test_edits_are_merged_by_lines() -> None:
    text = "".join(f"{n}\n" for n in range(8))
    one, other = text.replace("1\n", "one\n"), text.replace("6\n", "six\n").replace("1\n", "one\n")
    assert merged(text, one, other) == other
    assert merged(text, one, text.replace("1\n", "eins\n")) is None
    assert merged(text, text + "9\n", text.replace("0\n", "")) == text.replace("0\n", "") + "9\n"
