"""Data sets that keep samples in files, which processes write and read at the same time."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelify.conversion import Conversion
from accelify.convert import convert_paths

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


def converted(
    folder: Path,
    writing: str = "np.save(path, found)",
    question: str = "os.path.exists(path)",
    taken: str = "shape(index)",
    whole: str = "DataLoader(shapes, batch_size=8)",
    end: str = "print(judge(model, whole))",
) -> Conversion:
    text = SHAPES.format(writing=writing, question=question, taken=taken)
    (folder / "shapes.py").write_text(text)
    (folder / "train.py").write_text(TRAIN.format(end=end, whole=whole))
    (found, *_) = convert_paths([folder / "train.py"])
    assert found.status == "converted", found.reason
    return found


def test_every_process_goes_through_all_of_the_data(tmp_path: Path) -> None:
    found = converted(tmp_path)
    (said,) = [f for f in found.remaining if f.code == "ACC203"]
    assert said.line == 8
    assert "`Shapes.__getitem__` writes a file where there is none" in said.message
    assert "(numpy.save in shapes.py, line 18)" in said.message


@pytest.mark.parametrize(
    "other",
    [
        {"writing": "pass"},
        {"writing": "np.save(path + '.part.npy', found); os.replace(path + '.part.npy', path)"},
        {"taken": "made(index)"},
        {"whole": "shapes", "end": "first = [x for x, y in whole]"},
    ],
)
def test_data_that_nobody_writes_while_another_reads(tmp_path: Path, other: dict[str, str]) -> None:
    """The second writes the whole file at once; of loaders, only those that some process reads whole count."""
    assert not [f for f in converted(tmp_path, **other).remaining if f.code == "ACC203"]
