"""Batch norm over the copies of a DataParallel, and losses that apex scales, in modules that stay as they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelify.convert import convert_project
from accelify.findings import Finding
from accelify.proving import entries_of, prove
from accelify.source import Source

NORMS = """\
from torch import nn


class _Synchronized(nn.modules.batchnorm._BatchNorm):
    def forward(self, x):
        return self._meet(x) if self._is_parallel else super().forward(x)

    def {method}(self, shared, number):
        self._is_parallel = True


class SynchronizedBatchNorm2d(_Synchronized):
    def _check_input_dim(self, x):
        assert x.dim() == 4


def size():
    return 3
"""
TRAIN = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from norms import SynchronizedBatchNorm2d, size

model = nn.Sequential(nn.Conv2d(3, size(), 1), {norm}(3))
model = nn.DataParallel(model).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for (x,) in DataLoader(TensorDataset(torch.randn(8, 3, 2, 2)), batch_size=2):
    loss = model(x.cuda()).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
ATTACK = """\
from apex import amp


def attack(model, x, y, loss_of, optimizer):
    x.requires_grad_()
    with amp.scale_loss(loss_of(model(x), y), optimizer) as scaled:
        scaled.backward()
    return x.grad.sign()
"""
SCALED = """\
import torch
import torch.nn as nn
import torch.nn.functional as F
from apex import amp
from torch.utils.data import DataLoader, TensorDataset
from attack import attack

loader = DataLoader(TensorDataset(torch.randn(64, 4), torch.randint(0, 2, (64,))), batch_size=8)
model = nn.Linear(4, 2).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
for x, y in loader:
    loss = F.cross_entropy(model(x.cuda()), y.cuda())
    optimizer.zero_grad()
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    optimizer.step()
{end}
"""


def _named(folder: Path, **texts: str) -> list[Finding]:
    for name, text in texts.items():
        (folder / f"{name}.py").write_text(text)
    path = folder / "train.py"
    found = convert_project(Source.read(path))
    (entry,) = entries_of(found, [path])
    prove(found, entry)
    return entry.remaining


@pytest.mark.parametrize(
    ("norm", "method", "named"),
    [
        ("SynchronizedBatchNorm2d", "__data_parallel_replicate__", True),
        ("SynchronizedBatchNorm2d", "replicate", False),
        ("nn.BatchNorm2d", "__data_parallel_replicate__", False),
    ],
)
def test_what_meets_the_copies_sees_one_share(tmp_path: Path, norm: str, method: str, named: bool) -> None:
    found = _named(tmp_path, norms=NORMS.format(method=method), train=TRAIN.format(norm=norm))
    said = [(f.code, f.line) for f in found if "convert_sync_batchnorm" in f.message]
    assert said == ([("ACC705", 6)] if named else [])


@pytest.mark.parametrize(
    ("end", "named"), [("attack(model, x, y, F.cross_entropy, optimizer)", True), ("", False)]
)
def test_a_helper_that_scales_raises(tmp_path: Path, end: str, named: bool) -> None:
    found = _named(tmp_path, attack=ATTACK, train=SCALED.format(end=end))
    said = [(Path(f.path).name, f.line) for f in found if f.code == "ACC712"]
    assert said == ([("attack.py", 6)] if named else [])
