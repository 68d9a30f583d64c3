"""Models whose base class is not found, named as the reason why a script is left alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelify.convert import convert_paths

BASE = """\
from torch import nn


class Base(nn.Module):
    pass
"""
NET = """\
from torch import nn

{imports}


class Net(Base):
    def __init__(self):
        super().__init__()
        self.line = nn.Linear(4, 1)

    def forward(self, x):
        return self.line(x)
"""
TRAIN = """\
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

if len(sys.argv) > 1:
    from nets.wide import Net
else:
    from nets.deep import Net

net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for x, y in DataLoader(TensorDataset(torch.randn(32, 4), torch.randn(32, 1)), batch_size=8):
    loss = nn.functional.mse_loss(net(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("imports", "status"), [("from base import Base", "refused"), ("from nets.base import Base", "converted")]
)
def test_a_base_class_that_is_not_found_is_named(tmp_path: Path, imports: str, status: str) -> None:
    """In the folder of the model itself, where only Python 2 looked."""
    net = NET.format(imports=imports)
    files = {"train": TRAIN, "nets/base": BASE, "nets/wide": net, "nets/deep": net, "nets/__init__": ""}
    for name, text in files.items():
        (tmp_path / f"{name}.py").parent.mkdir(exist_ok=True)
        (tmp_path / f"{name}.py").write_text(text)
    (found,) = convert_paths([tmp_path / "train.py"])
    assert found.status == status
    if status == "refused":
        assert found.reason.startswith("`Net` (deep.py) is derived from `Base` of `base`, which is not found")
