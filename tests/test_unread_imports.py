"""Imports that a conversion leaves without a reader go, and all others stay."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelify.conversion import ConvertOptions
from accelify.convert import convert_paths
from accelify.unread_imports import without_unread_imports

SCRIPT = """\
import os
{imports}

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

loader = DataLoader(TensorDataset(torch.randn(64, 8), torch.randint(0, 3, (64,))), batch_size=8)
model = torch.nn.Linear(8, 3).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = GradScaler()
for x, y in loader:
    with autocast():
        loss = F.cross_entropy(model(x.cuda()), y.cuda())
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
"""
BOTH = "from torch.cuda.amp import GradScaler, autocast"


def _written(folder: Path, imports: str, runtime: str = "accelify") -> str:
    script = folder / "train.py"
    script.write_text(SCRIPT.format(imports=imports))
    (converted,) = convert_paths([script], ConvertOptions(runtime=runtime))
    assert converted.status == "converted"
    return converted.new_text


@pytest.mark.parametrize("runtime", ["accelify", "accelerate"])
def test_what_nothing_reads_any_more_goes(tmp_path: Path, runtime: str) -> None:
    text = _written(tmp_path, BOTH, runtime)
    assert "torch.cuda.amp" not in text
    assert text.startswith("import os\n\nimport torch\n")  # which the original did not read either


@pytest.mark.parametrize(
    ("imports", "left"),
    [
        (f"{BOTH}  # noqa: F401", f"{BOTH}  # noqa: F401"),
        (f"{BOTH}\n__all__ = ['autocast']", "from torch.cuda.amp import autocast\n"),
        (f"try:\n    {BOTH}\nexcept ImportError:\n    raise SystemExit('too old')", BOTH),
        ("from amp import GradScaler, autocast", "from amp import GradScaler, autocast"),
    ],
    ids=["wanted", "exported", "tried", "of the project"],
)
def test_what_somebody_may_need_stays(tmp_path: Path, imports: str, left: str) -> None:
    (tmp_path / "amp.py").write_text(f"{BOTH}\n")
    assert left in _written(tmp_path, imports)


@pytest.mark.parametrize(
    ("other", "stays"),
    [
        ("from train import autocast\n", True),
        ("from train import *\nwith autocast():\n    pass\n", True),
        ("import train\ntrain.autocast()\n", True),
        ("from train import model\nautocast = None\n", False),
    ],
)
def test_what_another_file_reads_from_here_stays(tmp_path: Path, other: str, stays: bool) -> None:
    (tmp_path / "other.py").write_text(other)
    text = _written(tmp_path, BOTH)
    assert ("from torch.cuda.amp import autocast\n" in text) is stays
    assert "import GradScaler" not in text


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("from torch import a, b, c  # x\n", "from torch import b  # x\n"),
        ("from torch import (\n    a,\n    b,\n    c,\n)\n", "from torch import (\n    b,\n)\n"),
        ("from torch import a, b, \\\n    c\n", "from torch import b\n"),
        ("import sys\n\nfrom torch import a, c\n\n\nb = 1\n", "import sys\n\n\nb = 1\n"),
        ("if b:\n    from torch import a, c\n", "if b:\n    from torch import a, c\n"),
        (
            "import torch.a as a\nimport torch\ntorch.a.b\nc\n",
            "import torch.a as a\nimport torch\ntorch.a.b\nc\n",
        ),
        (
            "from torch import (\n    b,\n    # of old\n    c,\n)\n",
            "from torch import (\n    b,\n    # of old\n    c,\n)\n",
        ),
    ],
)
def test_what_is_left_of_an_import(before: str, after: str) -> None:
    rest = "" if "b = 1" in before or "if b" in before else "print(b)\n"
    assert without_unread_imports(f"{before}{rest}a, c\n", f"{before}{rest}") == f"{after}{rest}"
