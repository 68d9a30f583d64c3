"""CUDA_VISIBLE_DEVICES that is set when the Accelerator is made already."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelify.conversion import Conversion
from accelify.convert import convert_paths, convert_project
from accelify.source import Source
from tests.transforms.support import convert, frame

HIDE = 'os.environ["CUDA_VISIBLE_DEVICES"] = "1"'
SGD = "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)"
HIDING = f"def hide():\n    {HIDE}\n"
LATE, SHARED = "this has no effect after the Accelerator", "all processes share the GPUs named here"


def said(found: Conversion) -> bool:
    (message,) = [f.message for f in found.remaining if f.code == "ACC113"]
    late = "after the Accelerator" in message
    assert (LATE in found.new_text) == late
    assert (SHARED in found.new_text) != late
    return late


@pytest.mark.parametrize("place", ["epoch", "end"])
def test_set_further_down(place: str) -> None:
    assert said(convert(**{place: HIDE}, build="model = nn.Linear(4, 2).cuda()\n" + SGD))


def test_set_by_a_function() -> None:
    model = f"model = nn.Linear(4, 2).cuda()\n{SGD}"
    assert said(convert(setup=HIDING, build=model, end="hide()"))
    assert not said(convert(setup=HIDING, build=model))


def test_set_first() -> None:
    assert not said(convert(setup=HIDE))


TRAIN = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from options import options, tested

gpus = options()
data = TensorDataset(torch.randn(32, 4), torch.randn(32, 1))
model = nn.Linear(4, 1).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for x, y in DataLoader(data, batch_size=8, shuffle=True):
        loss = nn.functional.mse_loss(model(x.cuda()), y.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    tested(epoch)
"""


BASE = f"""\
import os

import torch


class Base:
    def __init__(self, lr):
        self.device = self.choose()
        self.model = torch.nn.Linear(3, 1).to(self.device)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=lr)

    def choose(self):
        if torch.cuda.is_available():
            {HIDE}
            return torch.device("cuda:0")
        return torch.device("cpu")
"""
FIT = """\
from base import Base


class Fit(Base):
    def run(self, loader):
        for x in loader:
            loss = self.model(x.to(self.device)).mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
"""
START = """\
import torch
from fit import Fit

fit = Fit(0.1)
fit.run(torch.utils.data.DataLoader(torch.randn(8, 3), batch_size=2))
"""


def test_set_in_a_module_that_is_handed_the_accelerator(tmp_path: Path) -> None:
    for name, text in {"base": BASE, "fit": FIT, "start": START}.items():
        (tmp_path / f"{name}.py").write_text(text)
    found = {c.source.path.stem: c for c in convert_paths([tmp_path / "start.py"]) if c.source.path}
    assert "self.accelerator.device" in found["base"].new_text
    assert said(found["base"])


@pytest.mark.parametrize(
    ("helper", "imports", "file"),
    [
        (f"import os\n{HIDE}\nsize = 3\n", "from helper import size", "helper.py"),
        ("from deeper import size\n", "from helper import size", "deeper.py"),
        ("import setGPU\nsize = 3\n", "from helper import size", "setGPU"),
        ("size = 3\n", "import setGPU\nfrom helper import size", "setGPU"),
        (f"import os\nif __name__ == '__main__':\n    {HIDE}\nsize = 3\n", "from helper import size", None),
        (f"import os\n{HIDING}size = 3\n", "from helper import size", None),
    ],
)
def test_set_when_a_module_is_imported(tmp_path: Path, helper: str, imports: str, file: str | None) -> None:
    (tmp_path / "helper.py").write_text(helper)
    (tmp_path / "deeper.py").write_text(f"import os\n{HIDE}\nsize = 3\n")
    (tmp_path / "train.py").write_text(frame(imports=imports, ready="print(size)"))
    found = convert_project(Source.read(tmp_path / "train.py"))[0]
    messages = [f.message for f in found.remaining if f.code == "ACC113"]
    assert [m.split()[0] for m in messages] == ([file] if file else [])
    assert found.new_text.count("# TODO(accelify ACC714)") == len(messages)
