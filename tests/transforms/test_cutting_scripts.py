"""ACC109: scripts beside the converted one that cut `module.` off the names of what it saves."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelify.convert import convert_project
from accelify.source import Source
from tests.transforms.support import frame

NET = "from torch import nn\nclass Net(nn.Linear):\n    pass\n"
TEST = """
import torch
from {module} import Net
model = Net(3, 1)
read = torch.load("m.pt")
{cut}
model.load_state_dict(weights)
model = torch.nn.DataParallel(model).cuda()
"""
PARTS = 'weights = {".".join(k.split(".")[1:]): v for k, v in list(read.items())}'
WRAPPED = "model = torch.nn.DataParallel(Net(4, 3))"
SAVED = "torch.save(model.state_dict(), 'm.pt')"


def _lines(
    tmp_path: Path, cut: str, module: str = "net", build: str = WRAPPED, end: str = SAVED
) -> list[str]:
    texts = {"net": NET, "other": NET, "test": TEST.format(cut=cut, module=module)}
    texts["train"] = frame(imports="from net import Net", build=build, end=end)
    for name, text in texts.items():
        (tmp_path / f"{name}.py").write_text(text)
    found = convert_project(Source.read(tmp_path / "train.py"))[0]
    return [f.message.rpartition(" in ")[2] for f in found.remaining if f.code == "ACC109"]


@pytest.mark.parametrize(
    ("cut", "line"),
    [
        (PARTS, 6),
        ("weights = {k[7:]: v for k, v in read.items()}", 6),
        ('weights = {k.split(".", 1)[1]: v for k, v in read.items() if "fc" not in k}', 6),
        ("weights = {}\nfor k, v in read.items():\n    weights[k[len('module.'):]] = v", 8),
        ("weights = {}\nfor k, v in read.items():\n    name = k[7:]\n    weights[name] = v", 8),
    ],
)
def test_a_script_that_cuts_unasked_is_named(tmp_path: Path, cut: str, line: int) -> None:
    assert _lines(tmp_path, cut) == [f"test.py:{line}"]


@pytest.mark.parametrize(
    "cut",
    [
        'weights = {k.removeprefix("module."): v for k, v in read.items()}',
        'weights = {k.replace("module.", ""): v for k, v in read.items()}',
        'weights = {(k[7:] if k.startswith("module.") else k): v for k, v in read.items()}',
        "weights = {}\nfor k, v in read.items():\n    if wrapped:\n        k = k[7:]\n    weights[k] = v",
        "weights = {k: v[7:] for k, v in read.items()}",
        "weights = {k[3:]: v for k, v in read.items()}",
        'weights = {".".join(k.split("/")[1:]): v for k, v in read.items()}',
        "try:\n    model.load_state_dict(read)\nexcept KeyError:\n    weights = {k[7:]: v for k, v in read.items()}",
    ],
)
def test_a_script_that_asks_or_cuts_something_else_is_not(tmp_path: Path, cut: str) -> None:
    assert _lines(tmp_path, cut) == []


@pytest.mark.parametrize(
    "other",
    [
        {"module": "other"},
        {"build": "model = Net(4, 3)"},
        {"end": "torch.save(optimizer.state_dict(), 'm.pt')"},
        {"end": "torch.save(model.module.state_dict(), 'm.pt')"},
    ],
)
def test_what_it_loads_has_to_be_saved_out_of_the_wrapper(tmp_path: Path, other: dict[str, str]) -> None:
    assert _lines(tmp_path, PARTS, **other) == []
