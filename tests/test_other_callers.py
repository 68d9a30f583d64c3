"""Who calls, outside of the group, what takes the Accelerator now: those calls still fit; or is named (ACC409)."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Callable
from inspect import signature
from pathlib import Path

import pytest

from accelify.analysis.syntax import Tree
from accelify.conversion import Conversion
from accelify.convert import convert_paths
from accelify.writer.edits import AddParameter
from accelify.writer.writing import apply

READER = """\
import torch
from torch import nn


class Reader:
    def __init__(self, width):
        self.network = nn.Linear(width, 1)
        self.optimizer = torch.optim.SGD(self.network.parameters(), lr=0.1)

    def update(self, x, y):
        loss = nn.functional.mse_loss(self.network(x), y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()

    @staticmethod
    def load(path, width=4):
        reader = Reader(width)
        reader.network.load_state_dict(torch.load(path))
        return reader

    @staticmethod
    def width_of(path):
        return len(path)
"""
TRAIN = """\
import os
import sys

import torch
from torch.utils.data import DataLoader, TensorDataset

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
from pkg.reader import Reader

x = torch.randn(40, 4)
loader = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=8)
reader = Reader.load(sys.argv[1]) if len(sys.argv) > 1 else Reader(Reader.width_of("four"))
for x, y in loader:
    reader.update(x, y)
"""


def optional(found: list[Conversion]) -> set[str]:
    """The functions, and the classes, that can be called without the Accelerator as well."""
    names: set[str] = set()
    for conversion in found:
        for outer in ast.walk(ast.parse(conversion.new_text)):
            for inner in outer.body if isinstance(outer, (ast.Module, ast.ClassDef)) else ():
                if isinstance(inner, ast.FunctionDef) and "accelerator=None" in ast.unparse(inner.args):
                    of_class = f"{outer.name}." if isinstance(outer, ast.ClassDef) else ""
                    names.add(f"{of_class}{inner.name}".removesuffix(".__init__"))
    return names


def fitted(folder: Path, script: str = "scripts/train.py", **files: str) -> set[str]:
    """What takes the Accelerator in a package `pkg` and can be called without it, beside a script and other files.

    `__` in the names of those is a folder.
    """
    files = {"pkg/__init__.py": "", "pkg/reader.py": READER, script: TRAIN} | {
        name.replace("__", "/") + ".py": text for name, text in files.items()
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    found = convert_paths([folder / script])
    assert any("accelerator" in one.new_text for one in found[1:])
    assert not [f.message for one in found for f in one.remaining if f.code == "ACC409"]
    return optional(found)


def test_nobody_else(tmp_path: Path) -> None:
    other = "from pkg.reader import Reader\n\nprint(Reader.width_of('a'), Reader.__name__)\n"
    assert fitted(tmp_path, scripts__other=other, pkg__load="def load(path):\n    return path\n") == set()


@pytest.mark.parametrize("place", ["pkg/use.py", "pkg/inner/use.py", "scripts/use.py"])
def test_a_static_method_and_a_class_are_called_elsewhere(tmp_path: Path, place: str) -> None:
    use = "from pkg.reader import Reader\n\n\ndef use(path):\n    return Reader.load(path)\n"
    name = place.removesuffix(".py").replace("/", "__")
    assert fitted(tmp_path, **{name: use}) == {"Reader.load"}
    assert fitted(tmp_path, **{name: use.replace(".load(path)", "(4)")}) == {"Reader"}


@pytest.mark.parametrize("marked", [True, False])
def test_the_project_around_both_is_looked_through(tmp_path: Path, marked: bool) -> None:
    """But what lies around is not, where nothing says that it is one project."""
    if marked:
        (tmp_path / "pyproject.toml").touch()
    use = "import pkg.reader as r\n\nr.Reader.load('reader.pt')\n"
    assert bool(fitted(tmp_path, tools__deep__use="import sys\nsys.path.append('../..')\n" + use)) is marked


def test_a_class_that_is_derived_is_called_too(tmp_path: Path) -> None:
    derived = (
        "from pkg.reader import Reader\n\n\nclass Wide(Reader):\n    def read(self):\n        return self\n"
    )
    use = "from pkg.wide import Wide\n\nWide.load('wide.pt')\n"
    assert fitted(tmp_path, pkg__wide=derived) == set()
    assert fitted(tmp_path, pkg__wide=derived, pkg__use=use) == {"Reader.load"}
    own = derived + "\n    @staticmethod\n    def load(path):\n        return path\n"
    assert fitted(tmp_path, pkg__wide=own, pkg__use=use) == set()


@pytest.mark.parametrize(
    ("makes", "named"),
    [
        ("super().__init__(4)", []),
        ("self.network = None", ["`Reader` sets `accelerator` in its `__init__` now"]),
    ],
)
def test_a_class_that_is_derived_is_made_without_the_constructor(
    tmp_path: Path, makes: str, named: list[str]
) -> None:
    derived = f"from reader import Reader\n\nclass Wide(Reader):\n    def __init__(self):\n        {makes}\n"
    train = TRAIN.replace("pkg.", "").replace("Reader.load(sys.argv[1]) if len(sys.argv) > 1 else ", "")
    for name, text in (("reader", READER), ("train", train), ("wide", derived)):
        (tmp_path / f"{name}.py").write_text(text)
    found = convert_paths([tmp_path / "train.py"])
    said = [f.message for one in found for f in one.remaining if f.code == "ACC409"]
    assert [message.partition(",")[0] for message in said] == named
    assert all(
        "without which objects of `Wide` are made; not converted with it" in message for message in said
    )


NETS = """\
import torch
from torch import nn


class Both(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(4, 1)

    def forward(self, batch, mode="train"):
        x, y = self.ready(batch)
        if mode == "infer":
            with torch.no_grad():
                return self.net(x)
        return (self.net(x) - y).pow(2).mean()

    def ready(self, batch):
        if torch.cuda.is_available():
            batch["x"] = batch["x"].cuda()
            batch["y"] = batch["y"].cuda()
        return batch["x"], batch["y"]


class Other(nn.Module):
    def forward(self, x):
        return x


def make():
    return Both().cuda()
"""
NET_TRAIN = """\
import torch
from torch.utils.data import DataLoader

from work import Worker

data = [{"x": torch.randn(4), "y": torch.randn(1)} for _ in range(32)]
worker = Worker()
for batch in DataLoader(data, batch_size=4):
    worker.step(batch)
"""
WORK = """\
import torch

from nets import Other, make


class Worker:
    def __init__(self):
        self.net = make()
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)

    def step(self, batch):
        loss = self.net(batch)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
"""


@pytest.mark.parametrize(
    ("use", "names"),
    [
        ("from nets import Both\n\nnet = Both().cuda()\nprint(net({}, mode='infer'))\n", ["Both"]),
        ("import nets\n\nnet = nets.make()\n", ["make"]),
        ("from nets import Other\n\nnet = Other().cuda()\n", []),
        ("from nets import Both\n\nprint(Both.__name__)\n", []),
    ],
)
def test_what_a_function_no_longer_moves(tmp_path: Path, use: str, names: list[str]) -> None:
    for name, text in (("nets", NETS), ("work", WORK), ("train", NET_TRAIN), ("show", use)):
        (tmp_path / f"{name}.py").write_text(text)
    found = convert_paths([tmp_path / "train.py"])
    assert not any('["x"].cuda()' in one.new_text for one in found)
    said = [f.message for one in found for f in one.remaining if f.code == "ACC409"]
    assert [message.split("`")[1] for message in said] == names
    for message in said:
        assert "no longer moves to the device what prepare places" in message
        assert message.endswith("show.py")


TOOLS = """\
import torch.nn as nn


def pprint(*args):
    print(*args)


def train(model, loader, optimizer):
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    pprint("loss", loss.item())
"""
MAIN = """\
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset
from tools import train

loader = DataLoader(TensorDataset(torch.randn(40, 4), torch.randn(40, 1)), batch_size=8, shuffle=True)
net = nn.Linear(4, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
train(net, loader, optimizer)
"""


def named(folder: Path, other: str, **files: str) -> set[str]:
    """The functions of `tools.py` that go on to fit the calls of a file beside it."""
    files = {"tools": TOOLS, "main": MAIN, "other": other} | files
    for name, text in files.items():
        (folder / f"{name}.py").parent.mkdir(exist_ok=True)
        (folder / f"{name}.py").write_text(text)
    found = convert_paths([folder / "main.py"])
    assert any("accelerator.backward(loss)" in one.new_text for one in found)
    return optional(found)


@pytest.mark.parametrize(
    "other",
    [
        "import pprint\nimport tools\n\npprint.pprint({'a': 1})\ntools.net.train(False)\n",
        "from tools import *\n\n\ndef train(model):\n    return model\n\n\ntrain(1)\n",
        "import tools\n\n\nclass Model:\n    def run(self):\n        self.train(False)\n",
        "import tools\n\n\ndef run(train, pprint):\n    train(1)\n    pprint(2)\n",
        "import tools\n\nprint('call train (or pprint ())')  # train()\n",
        "import tools\nfrom pprint import pprint\n\npprint(1)\n",
        "import tools\nfrom elsewhere import train\n\ntrain(1)\n",
    ],
)
def test_the_same_word_for_something_else(tmp_path: Path, other: str) -> None:
    assert (
        named(tmp_path, other, elsewhere="import tools\n\n\ndef train(model):\n    return model\n") == set()
    )


@pytest.mark.parametrize(
    ("other", "names"),
    [
        ("from tools import train\n\ntrain(1, 2, 3)\n", {"train"}),
        ("from tools import train as fit\n\nfit(1, 2, 3)\n", {"train"}),
        ("from tools import *\n\npprint(1)\n", {"pprint"}),
        ("import tools\n\ntools.train(1, 2, 3)\n", {"train"}),
        ("import tools as t\n\nt.train(1, 2, 3)\nt.pprint(1)\n", {"train", "pprint"}),
        ("import tools\n\nfit = tools.train\nfit(1, 2, 3)\n", {"train"}),
        ("def run():\n    from tools import train\n    train(1, 2, 3)\n", {"train"}),
        (
            "try:\n    from tools import train\nexcept ImportError:\n    train = None\ntrain(1, 2)\n",
            {"train"},
        ),
        ("import tools\n\nprint 'python 2'\ntrain(1)\n", {"train"}),
        ("from inner import train\n\ntrain(1, 2, 3)\n", {"train"}),
    ],
)
def test_calls_by_whatever_name_the_imports_give(tmp_path: Path, other: str, names: set[str]) -> None:
    handing = {"inner/__init__": "from tools import train\n"}
    assert named(tmp_path, other, **handing) == names


RESTORED = """\

    @classmethod
    def restored(cls, path):
        return {made}
"""


@pytest.mark.parametrize(
    ("made", "names"),
    [
        ("cls(**torch.load(path))", {"Reader"}),
        ("torch.load(path)", set()),
        ("cls.width_of(path)", set()),
    ],
)
def test_a_constructor_is_called_on_a_way_that_only_others_go(
    tmp_path: Path, made: str, names: set[str]
) -> None:
    reader = READER + RESTORED.replace("{made}", made)
    other = "from pkg.reader import Reader\n\nprint(Reader.restored('a.pt'))\n"
    assert fitted(tmp_path, pkg__reader=reader, scripts__other=other) == names
    again = "\n\ndef again(path):\n    return Reader(len(path))\n"
    other = "from pkg.reader import again\n\nprint(again('a.pt'))\n"
    assert "again" in fitted(tmp_path, pkg__reader=reader + again, scripts__other=other)


@pytest.mark.parametrize(
    ("head", "call", "expected"),
    [
        ("a, *rest", "step(a, x)", "def step(a, *rest, accelerator=None):"),
        ("a, *, b=1", "step(x, b=2)", "def step(a, *, b=1, accelerator=None):"),
        ("a, **rest", "step(x, b=2)", "def step(a, accelerator=None, **rest):"),
        ("a, /", "step(x)", "def step(a, /, accelerator=None):"),
        ("", "step()", "def step(accelerator=None):"),
        ("\n    a,  # the data\n    b=1,\n", "step(x)", "b=1,\n    accelerator=None,\n):"),
    ],
)
def test_whatever_the_function_takes(head: str, call: str, expected: str) -> None:
    tree = Tree(f"def step({head}):\n    pass\n")
    text = apply(tree, [AddParameter(tree.module.body[0], "accelerator", default="None")]).decode()
    assert expected in text
    (before,), (after,) = (list(inspect_signature(t)) for t in (tree.text, text))
    assert [*before, "accelerator"] == sorted([*after], key=lambda name: name == "accelerator")


def inspect_signature(text: str) -> list[list[str]]:
    names: dict[str, Callable[..., object]] = {}
    exec(text, {}, names)
    return [list(signature(names["step"]).parameters)]


def test_a_body_in_the_line_of_its_head_cannot_go_on_to_fit(tmp_path: Path) -> None:
    tools = TOOLS.replace("def pprint(*args):\n    print(*args)", "def pprint(*args): print(*args)")
    for name, text in (("tools", tools), ("main", MAIN), ("other", "import tools\n\ntools.pprint(1)\n")):
        (tmp_path / f"{name}.py").write_text(text)
    (found, *_) = convert_paths([tmp_path / "main.py"])
    assert found.status == "converted" or "`pprint` in line 4, which other files call" in found.reason


def test_what_is_converted_in_the_same_run_is_no_other_caller(tmp_path: Path) -> None:
    for name, text in (("tools", TOOLS), ("main", MAIN), ("second", MAIN.replace("8,", "4,"))):
        (tmp_path / f"{name}.py").write_text(text)
    assert optional(convert_paths([tmp_path / "main.py"])) == {"train"}
    found = convert_paths([tmp_path / "main.py", tmp_path / "second.py"])
    assert all(one.status == "converted" for one in found)
    assert optional(found) == set()


def test_what_stays_as_it_is_in_the_same_run_goes_on_to_fit(tmp_path: Path) -> None:
    refused = MAIN + "import torch.distributed as dist\n\ndist.init_process_group('gloo')\n"
    for name, text in (("tools", TOOLS), ("main", MAIN), ("second", refused)):
        (tmp_path / f"{name}.py").write_text(text)
    found = convert_paths([tmp_path / "main.py", tmp_path / "second.py"])
    assert {one.status for one in found if one.source.path == tmp_path / "second.py"} == {"refused"}
    assert optional(found) == {"train"}
    assert not any(finding.code == "ACC409" for one in found for finding in one.remaining)


def test_such_a_caller_does_what_it_did(tmp_path: Path) -> None:
    other = MAIN + "print(sum(p.double().sum().item() for p in net.parameters()))\n"
    other = other.replace("loader =", "torch.manual_seed(1)\nloader =")
    for name, text in (("tools", TOOLS), ("main", MAIN), ("other", other)):
        (tmp_path / f"{name}.py").write_text(text)

    def printed() -> str:
        command = [sys.executable, "other.py"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    before = printed()
    for conversion in convert_paths([tmp_path / "main.py"]):
        assert conversion.source.path is not None
        conversion.source.path.write_text(conversion.new_text)
    assert "accelerator=None" in (tmp_path / "tools.py").read_text()
    assert printed() == before


def test_a_cell_of_a_notebook_calls_it(tmp_path: Path) -> None:
    cell = {
        "cell_type": "code", "execution_count": None, "metadata": {}, "outputs": [],
        "source": ["%matplotlib inline\n", "from pkg.reader import Reader\n", "reader = Reader.load('a.pt')\n"],
    }  # fmt: skip
    notebook = {"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    (tmp_path / "look.ipynb").write_text(json.dumps(notebook))
    (tmp_path / "pyproject.toml").write_text("")
    assert fitted(tmp_path) == {"Reader.load"}


def test_a_test_calls_it(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("")
    text = "from pkg.reader import Reader\n\n\ndef test_it():\n    assert Reader.load('a.pt')\n"
    assert fitted(tmp_path, tests__test_reader=text) == {"Reader.load"}


ABOVE = """
import torch
from torch.utils.data import DataLoader, TensorDataset


def run(rate):
    loader = DataLoader(TensorDataset(torch.ones(8, 3), torch.ones(8, 1)), batch_size=4)
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    for x, y in loader:
        loss = (model(x) - y).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model


def shown(model):
    loader = DataLoader(TensorDataset(torch.ones(8, 3), torch.ones(8, 1)), batch_size=4)
    total = 0.0
    with torch.no_grad():
        for x, y in loader:
            total += (model(x) - y).pow(2).sum().item()
    print(total)


if __name__ == "__main__":
    model = run(0.1)
    shown(model)
"""


@pytest.mark.parametrize(
    ("script", "caller", "marked"),
    [
        ("training/joint.py", "main", False),
        ("training/joint.py", "main", True),
        ("src/training/joint.py", "tools/deep/main", True),
    ],
)
def test_a_file_above_imports_the_script_by_the_name_of_its_folder(
    tmp_path: Path, script: str, caller: str, marked: bool
) -> None:
    if marked:
        (tmp_path / "pyproject.toml").touch()
    joint, other = tmp_path / script, tmp_path / f"{caller}.py"
    for path in (joint, other):
        path.parent.mkdir(parents=True, exist_ok=True)
    joint.write_text(ABOVE)
    assert optional(convert_paths([joint])) == set()
    added = "import sys\nsys.path.append('../../src')\n" if other.parent != tmp_path else ""
    other.write_text(f"{added}from training.joint import run, shown\n\nshown(run(0.2))\n")
    assert optional(convert_paths([joint])) == {"run", "shown"}


SHARED_CLASS = """\
import torch
from torch.utils.data import DataLoader, TensorDataset


class Trainer:
    def __init__(self, model, optimizer, loader, device):
        self.device = device
        self.model = model{move}
        self.optimizer, self.loader = optimizer, loader

    def train(self):
        for x, y in self.loader:
            self.optimizer.zero_grad()
            torch.nn.functional.mse_loss(self.model(x), y).backward()
            self.optimizer.step()


if __name__ == "__main__":
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = torch.nn.Linear(4, 1)
    loader = DataLoader(TensorDataset(torch.randn(64, 4), torch.randn(64, 1)), batch_size=8)
    Trainer(model, torch.optim.SGD(model.parameters(), 0.1), loader, device).train()
"""


@pytest.mark.parametrize("move", [".to(device)", ""])
def test_a_class_of_the_script_that_another_script_uses_moves_nothing_there(
    tmp_path: Path, move: str
) -> None:
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "main.py").write_text(SHARED_CLASS.format(move=move))
    other = SHARED_CLASS.partition("if __name__")[2].partition("\n")[2]
    (tmp_path / "other.py").write_text(
        "import torch\nfrom torch.utils.data import DataLoader, TensorDataset\nfrom main import Trainer\n\n"
        "if __name__ == '__main__':\n" + other
    )
    (conversion,) = convert_paths([tmp_path / "main.py"])
    messages = [f.message for f in conversion.remaining if f.code == "ACC409"]
    assert [message.partition(";")[0] for message in messages] == (
        ["`Trainer` no longer moves to the device what prepare places"] if move else []
    )


WRAPPED = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

net = {net}
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for x, y in DataLoader(TensorDataset(torch.randn(8, 2), torch.randn(8, 1)), batch_size=2):
    optimizer.zero_grad()
    (net(x) - y).pow(2).mean().backward()
    optimizer.step()
torch.save(net.state_dict(), "net.pt")
"""
DATA_PARALLEL = "nn.DataParallel(nn.Linear(2, 1))"
LOAD = "import torch\nfrom torch import nn\nnet = nn.Linear(2, 1)\nstate = torch.load('net.pt')\n"


@pytest.mark.parametrize(
    ("read", "is_named"),
    [
        ("net = nn.DataParallel(net)\nnet.load_state_dict(state)\n", True),
        ("if 1:\n    net = torch.nn.DataParallel(net).cuda()\nnet.load_state_dict(state)\n", True),
        ("net.load_state_dict({name[7:]: w for name, w in state.items()})\n", True),
        ("net.load_state_dict({name[len('module.') :]: w for name, w in state.items()})\n", True),
        ("new = {}\nfor k in state:\n    new[k[7:]] = state[k]\nnet.load_state_dict(new)\n", True),
        ("net.load_state_dict({k[7:] if k.startswith('module.') else k: state[k] for k in state})\n", False),
        ("net.load_state_dict({k.replace('module.', ''): state[k] for k in state})\n", False),
        ("net.load_state_dict(state)\nnet = nn.DataParallel(net)\n", False),
        ("wrapped = nn.DataParallel(net)\nwrapped.module.load_state_dict(state)\n", False),
        ("print(state[7:])\n", False),
    ],
)
def test_weights_that_another_script_reads(tmp_path: Path, read: str, is_named: bool) -> None:
    (tmp_path / "show.py").write_text(LOAD + read)
    for net, found in ((DATA_PARALLEL, is_named), ("nn.Linear(2, 1)", False)):
        (tmp_path / "train.py").write_text(WRAPPED.format(net=net))
        (conversion,) = convert_paths([tmp_path / "train.py"])
        assert conversion.status == "converted"
        assert [one.line for one in conversion.remaining if one.code == "ACC409"] == [5] * found
    # The function for one call leaves the names as they are.
    text = WRAPPED.format(net="nn.Linear(2, 1)").replace("(net(x)", "(nn.parallel.data_parallel(net, x)")
    (tmp_path / "train.py").write_text(text)
    (conversion,) = convert_paths([tmp_path / "train.py"])
    assert "data_parallel" not in conversion.new_text
    assert [one.line for one in conversion.remaining if one.code == "ACC409"] == []
