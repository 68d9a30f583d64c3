"""Scripts whose moves are made by functions of other modules: on which device they run."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelify.convert import convert_project
from accelify.source import Source

TRAIN = """\
import argparse
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from tools import move

args = argparse.Namespace(cuda=True)
model = nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(torch.randn(8, 4)), batch_size=2)
for (x,) in loader:
    loss = nn.functional.cross_entropy(model(move(x)), move(torch.ones(2).long()))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def creation(folder: Path, tools: str, script: str = TRAIN) -> str:
    (folder / "tools.py").write_text(f"import torch\n\n{tools}")
    (folder / "train.py").write_text(script)
    text = convert_project(Source.read(folder / "train.py"))[0].new_text
    return next(line for line in text.splitlines() if "= Accelerator(" in line)


def test_a_helper_that_moves_to_the_gpu_means_a_gpu(tmp_path: Path) -> None:
    tools = "def move(x):\n    return x.cuda() if torch.cuda.is_available() else x\n"
    assert creation(tmp_path, tools) == "accelerator = Accelerator()"


def test_so_does_one_that_is_asked_at_import(tmp_path: Path) -> None:
    tools = "where = 'cuda' if torch.cuda.is_available() else 'cpu'\n\ndef move(x):\n    return x.to(where)\n"
    assert creation(tmp_path, tools) == "accelerator = Accelerator()"


def test_helpers_that_nobody_calls_mean_nothing(tmp_path: Path) -> None:
    tools = "def move(x):\n    return x\n\ndef other(x):\n    return x.cuda()\n"
    assert creation(tmp_path, tools) == "accelerator = Accelerator(cpu=True)"


@pytest.mark.parametrize(
    "body",
    ["if x.is_cuda:\n        c = c.cuda()\n    return x * c", "return x * (c.cuda() if x.is_cuda else c)"],
)
def test_a_helper_that_goes_where_its_tensor_lies_means_nothing(tmp_path: Path, body: str) -> None:
    tools = f"def move(x):\n    c = torch.ones(1)\n    {body}\n"
    assert creation(tmp_path, tools) == "accelerator = Accelerator(cpu=True)"
    asked = tools.replace("x.is_cuda", "torch.cuda.is_available()")
    assert creation(tmp_path, asked) == "accelerator = Accelerator()"


@pytest.mark.parametrize("flag", ["cuda", "use_cuda", "uses_cuda"])
def test_the_flag_that_a_helper_is_given_decides(tmp_path: Path, flag: str) -> None:
    tools = f"def move(x, {flag}):\n    if {flag}:\n        x = x.cuda()\n    return x\n"
    script = TRAIN.replace("move(x)", "move(x, args.cuda)").replace(".long())", f".long(), {flag}=args.cuda)")
    assert creation(tmp_path, tools, script) == "accelerator = Accelerator(cpu=not args.cuda)"


def test_a_helper_that_nothing_of_the_script_goes_through_means_nothing(tmp_path: Path) -> None:
    tools = "def move(x):\n    return x\n\ndef tell():\n    return torch.cuda.is_available()\n"
    script = TRAIN.replace("import move\n", "import move, tell\n\ntell()\n")
    assert creation(tmp_path, tools, script) == "accelerator = Accelerator(cpu=True)"


def test_a_class_that_hands_its_flag_to_a_helper(tmp_path: Path) -> None:
    tools = "def gpu(x, gpu=False):\n    if gpu:\n        return x.cuda()\n    return x\n"
    script = """\
import torch
from torch import nn
from tools import gpu


class Model:
    def __init__(self, use_cuda=False):
        self.use_cuda = use_cuda

    def fit(self, x):
        self.net = gpu(nn.Linear(4, 2), self.use_cuda)
        self.optimizer = torch.optim.Adam(self.net.parameters())
        loss = self.net(gpu(x, self.use_cuda)).mean()
        loss.backward()
        self.optimizer.step()
"""
    assert creation(tmp_path, tools, script).strip() == "self.accelerator = Accelerator(cpu=not use_cuda)"


def test_where_a_tensor_is_is_no_option(tmp_path: Path) -> None:
    helper = "def onehot(y):\n    new = torch.eye(2)[y]\n"
    helper += "    if y.is_cuda:\n        return new.cuda()\n    return new\n\n\n"
    script = TRAIN.replace("args =", f"{helper}args =").replace("from tools import move\n", "")
    found = convert_project(Source.from_text(script.replace("move(", "("), tmp_path / "train.py"))[0]
    assert "= Accelerator()" in found.new_text
    assert "ACC410" not in {f.code for f in found.remaining}
