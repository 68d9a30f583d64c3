"""Data sets that keep samples in files, which every process writes that goes through all of the data."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelify.convert import convert_project
from accelify.proving import prove
from accelify.source import Source

SHAPES = """\
import os

import numpy as np
import torch
from torch.utils.data import Dataset


def made(number):
    return np.full(4, number, dtype=np.float32)


def shape(number):
    path = os.path.join("cache", "%d.npy" % number)
    if {question}:
        found = np.load(path)
    else:
        found = made(number)
        {writing}
    return found


class Shapes(Dataset):
    def __len__(self):
        return 32

    def __getitem__(self, index):
        return torch.from_numpy({taken}), index % 2


def judge(model, loader):
    model.eval()
    return max(float(model(x).sum()) for x, y in loader)
"""
TRAIN = """\
import torch
from torch import nn
from torch.utils.data import DataLoader
from shapes import Shapes, judge

shapes = Shapes()
loader = DataLoader(shapes, batch_size=8, shuffle=True)
whole = {whole}
model = nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
{end}
"""


def said(
    folder: Path,
    writing: str = "np.save(path, found)",
    question: str = "os.path.exists(path)",
    taken: str = "shape(index)",
    whole: str = "DataLoader(shapes, batch_size=8)",
    end: str = "print(judge(model, whole))",
) -> list[str]:
    text = SHAPES.format(writing=writing, question=question, taken=taken)
    (folder / "shapes.py").write_text(text)
    (folder / "train.py").write_text(TRAIN.format(end=end, whole=whole))
    conversions = convert_project(Source.read(folder / "train.py"))
    assert conversions[0].status == "converted", conversions[0].reason
    prove(conversions, conversions[0])
    found = [one for conversion in conversions for one in conversion.remaining]
    return [one.message for one in found if one.code == "ACC702"]


@pytest.mark.parametrize(
    "loader", [{}, {"whole": "shapes", "end": "first = [x for x, y in whole]"}], ids=["loader", "data"]
)
def test_every_process_goes_through_all_of_the_data(tmp_path: Path, loader: dict[str, str]) -> None:
    (message,) = said(tmp_path, **loader)
    assert message.startswith("every process writes a file here: `numpy.save` (called at train.py:")


@pytest.mark.parametrize(
    "other",
    [
        {"writing": "pass"},
        {"taken": "made(index)"},
        {"end": "for x, y in loader:\n    model(x)"},  # each process takes other samples
    ],
)
def test_data_that_nobody_writes_while_another_reads(tmp_path: Path, other: dict[str, str]) -> None:
    assert not said(tmp_path, **other)
