"""Who calls, outside of the group, what takes the Accelerator now (ACC409)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from accelify.convert import convert_paths

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


def said(folder: Path, script: str = "scripts/train.py", **files: str) -> list[str]:
    """What ACC409 says of a package `pkg`, a script beside it, and other files, `__` in whose names is a folder."""
    files = {"pkg/__init__.py": "", "pkg/reader.py": READER, script: TRAIN} | {
        name.replace("__", "/") + ".py": text for name, text in files.items()
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    found = convert_paths([folder / script])
    assert any("def load(accelerator, path, width=4):" in one.new_text for one in found)
    return [f.message for one in found for f in one.remaining if f.code == "ACC409"]


def test_nobody_else(tmp_path: Path) -> None:
    other = "from pkg.reader import Reader\n\nprint(Reader.width_of('a'), Reader.__name__)\n"
    assert said(tmp_path, scripts__other=other, pkg__load="def load(path):\n    return path\n") == []


@pytest.mark.parametrize("place", ["pkg/use.py", "pkg/inner/use.py", "scripts/use.py"])
def test_a_static_method_and_a_class_are_called_elsewhere(tmp_path: Path, place: str) -> None:
    use = "from pkg.reader import Reader\n\n\ndef use(path):\n    return Reader.load(path)\n"
    (message,) = said(tmp_path, **{place.removesuffix(".py").replace("/", "__"): use})
    assert message.startswith("`Reader.load` takes the Accelerator now")
    assert message.endswith(str(tmp_path / place))
    (message,) = said(
        tmp_path, **{place.removesuffix(".py").replace("/", "__"): use.replace(".load(path)", "(4)")}
    )
    assert message.startswith("`Reader` takes the Accelerator now")


@pytest.mark.parametrize("marked", [True, False])
def test_the_project_around_both_is_looked_through(tmp_path: Path, marked: bool) -> None:
    """But what lies around is not, where nothing says that it is one project."""
    if marked:
        (tmp_path / "pyproject.toml").touch()
    use = "import pkg.reader as r\n\nr.Reader.load('reader.pt')\n"
    assert bool(said(tmp_path, tools__deep__use="import sys\nsys.path.append('../..')\n" + use)) is marked


def test_a_class_that_is_derived_is_called_too(tmp_path: Path) -> None:
    derived = (
        "from pkg.reader import Reader\n\n\nclass Wide(Reader):\n    def read(self):\n        return self\n"
    )
    use = "from pkg.wide import Wide\n\nWide.load('wide.pt')\n"
    assert said(tmp_path, pkg__wide=derived) == []
    (message,) = said(tmp_path, pkg__wide=derived, pkg__use=use)
    assert message.endswith("use.py")
    own = derived + "\n    @staticmethod\n    def load(path):\n        return path\n"
    assert said(tmp_path, pkg__wide=own, pkg__use=use) == []


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
    """The functions of `tools.py` that ACC409 names for a file beside it."""
    files = {"tools": TOOLS, "main": MAIN, "other": other} | files
    for name, text in files.items():
        (folder / f"{name}.py").parent.mkdir(exist_ok=True)
        (folder / f"{name}.py").write_text(text)
    found = convert_paths([folder / "main.py"])
    assert any("def train(accelerator, model" in one.new_text for one in found)
    return {f.message.split("`")[1] for one in found for f in one.remaining if f.code == "ACC409"}


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
    ("made", "use", "names"),
    [
        ("cls(**torch.load(path))", "Reader.restored('a.pt')", {"Reader.restored"}),
        ("torch.load(path)", "Reader.restored('a.pt')", set()),
        ("cls.width_of(path)", "Reader.restored('a.pt')", set()),
        ("cls(**torch.load(path))", "Reader.width_of('a.pt')", set()),
        ("cls(**torch.load(path))", "again('a.pt')", {"again"}),
    ],
)
def test_a_constructor_is_called_on_a_way_that_only_others_go(
    tmp_path: Path, made: str, use: str, names: set[str]
) -> None:
    reader = (
        READER + RESTORED.replace("{made}", made) + "\n\ndef again(path):\n    return Reader(len(path))\n"
    )
    other = f"from pkg.reader import Reader, again\n\nprint({use})\n"
    messages = said(tmp_path, pkg__reader=reader, scripts__other=other)
    assert {message.split("`")[1] for message in messages} == names
    assert all(message.endswith("other.py") for message in messages)


def test_a_cell_of_a_notebook_calls_it(tmp_path: Path) -> None:
    cell = {
        "cell_type": "code", "execution_count": None, "metadata": {}, "outputs": [],
        "source": ["%matplotlib inline\n", "from pkg.reader import Reader\n", "reader = Reader.load('a.pt')\n"],
    }  # fmt: skip
    notebook = {"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    (tmp_path / "look.ipynb").write_text(json.dumps(notebook))
    (tmp_path / "pyproject.toml").write_text("")
    assert any("look.ipynb" in message for message in said(tmp_path))


def test_a_test_calls_it(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("")
    text = "from pkg.reader import Reader\n\n\ndef test_it():\n    assert Reader.load('a.pt')\n"
    assert any("tests/test_reader.py" in message for message in said(tmp_path, tests__test_reader=text))
