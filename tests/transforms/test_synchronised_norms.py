"""Batch norm over the copies of a DataParallel."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelify.convert import convert_project
from accelify.source import Source

NORMS = "from torch import nn\n\n\nclass SynchronizedBatchNorm2d(nn.BatchNorm2d):\n    pass\n"
TRAIN = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from norms import SynchronizedBatchNorm2d

model = nn.Sequential(nn.Conv2d(3, 3, 1), {norm}(3)){wrap}
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for (x,) in DataLoader(TensorDataset(torch.randn(8, 3, 2, 2)), batch_size=2):
    loss = model(x.cuda()).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("norm", "wrap", "said"),
    [
        ("SynchronizedBatchNorm2d", "\nmodel = nn.DataParallel(model).cuda()", True),
        ("nn.BatchNorm2d", "\nmodel = nn.DataParallel(model).cuda()", False),
    ],
)
def test_it_is_named(tmp_path: Path, norm: str, wrap: str, said: bool) -> None:
    (tmp_path / "norms.py").write_text(NORMS)
    (tmp_path / "train.py").write_text(TRAIN.format(norm=norm, wrap=wrap))
    found = convert_project(Source.read(tmp_path / "train.py"))[0]
    assert found.status == "converted", found.reason
    messages = [f.message for f in found.remaining if f.code == "ACC109"]
    assert any("convert_sync_batchnorm" in message for message in messages) is said


def test_what_nobody_calls_says_nothing(tmp_path: Path) -> None:
    unused = f"{NORMS}\n\ndef put_in(model):\n    model.norm = SynchronizedBatchNorm2d(3)\n"
    unused += "\n\ndef size():\n    return 3\n"
    (tmp_path / "norms.py").write_text(unused)
    text = TRAIN.format(norm="nn.BatchNorm2d", wrap="\nmodel = nn.DataParallel(model).cuda()\nprint(size())")
    (tmp_path / "train.py").write_text(text.replace("import SynchronizedBatchNorm2d", "import size"))
    found = convert_project(Source.read(tmp_path / "train.py"))[0]
    assert not any("convert_sync_batchnorm" in f.message for f in found.remaining)
