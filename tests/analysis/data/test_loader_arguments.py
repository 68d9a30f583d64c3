"""What loaders are told where they are made, through helpers of other modules."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelify.conversion import ConvertOptions
from accelify.convert import convert_source
from accelify.source import Source
from tests.transforms.support import codes, convert

LOADERS = """\
import torch
from torch.utils.data import DataLoader, TensorDataset

{constant}
def make(n, last=True):
    data = TensorDataset(torch.randn(n, 3), torch.randn(n, 1))
    return DataLoader(data, batch_size=8, drop_last=last)

def make_on(n, last):
    return make(n, last)

def both():
    return {train}, {rest}
"""
SCRIPT = """\
import torch
from loaders import both

loader, rest_loader = both()
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for x, y in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
    total = 0
    for x, y in rest_loader:
        total += torch.nn.functional.mse_loss(model(x), y).item()
    print(epoch, total / len(rest_loader))
"""


def _told(tmp_path: Path, train: str, rest: str, constant: str = "") -> str:
    (tmp_path / "loaders.py").write_text(LOADERS.format(train=train, rest=rest, constant=constant))
    path = tmp_path / "train.py"
    found = convert_source(Source.from_text(SCRIPT, path), ConvertOptions())
    return " ".join(f.message for f in found.remaining)


@pytest.mark.parametrize(
    ("rest", "drops"),
    [
        ("make(56, last=True)", True),
        ("make(56)", True),
        ("make_on(56, True)", True),
        ("make_on(last=True, n=56)", True),
        ("make(56, LAST)", True),
        ("make(56, False)", False),
        ("make_on(56, False)", False),
        ("make(56, **{'last': False})", False),
        ("make(*(56, False))", False),
    ],
)
@pytest.mark.parametrize("train", ["make(64, False)", "make_on(64, True)"])
def test_a_helper_of_another_module_is_told_of_the_last_batch(
    rest: str, drops: bool, train: str, tmp_path: Path
) -> None:
    told = _told(tmp_path, train, rest, "LAST = True\n")
    assert ("drop_last=True would leave out whole batches" in told) is drops


def test_a_variable_that_is_assigned_twice_says_nothing(tmp_path: Path) -> None:
    told = _told(tmp_path, "make(64, False)", "make(56, LAST)", "LAST = True\nLAST = False\n")
    assert "drop_last=True" not in told


@pytest.mark.parametrize(("last", "named"), [("True", False), ("False", True)])
def test_every_batch_of_such_a_loader_is_as_large_as_the_others(last: str, named: bool) -> None:
    made = (
        f"def made(last):\n    return DataLoader(data, batch_size=8, drop_last=last)\nloader = made({last})"
    )
    found = convert(ready=made, batch="if len(x) < 8:\n    continue")
    assert ("ACC405" in codes(found)) is named
