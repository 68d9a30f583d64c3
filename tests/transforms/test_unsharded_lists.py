"""What is said of training data that a loader gave before, and of a loader that prepare cannot reach."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelify.convert import convert_project
from accelify.source import Source

DATA = """\
import torch
from torch.utils.data import DataLoader, TensorDataset


class Data:
    def __init__(self):
        source = TensorDataset(torch.randn(64, 6), torch.randint(0, 3, (64,)))
        self.own = DataLoader(source, batch_size=1)

    def read(self):
        held = {"x": [], "y": []}
        for x, y in self.own:
            held["x"].append(x)
            held["y"].append(y)
        return held

    def pairs(self):
        found = []
        for x, y in self.own:
            found.append((x, y))
        return found

    def each(self):
        for x, y in self.own:
            yield x, y
"""
SCRIPT = """\
import torch
import torch.nn.functional as F
from data import Data

data = Data()
held = data.{made}
model = torch.nn.Linear(6, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in {read}:
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
BY_HAND = "where batches are made by hand, accelerator.shard_batch gives each its share"
APART = "from a loader that is stored where prepare cannot reach it"


@pytest.mark.parametrize(
    ("made", "read", "words", "others"),
    [
        ("read()", 'zip(held["x"], held["y"])', BY_HAND, APART),
        ("pairs()", "held", BY_HAND, APART),
        ("each()", "held", APART, BY_HAND),
        ("each()", "data.each()", APART, BY_HAND),
    ],
)
def test_whose_batches_they_are(made: str, read: str, words: str, others: str, tmp_path: Path) -> None:
    (tmp_path / "data.py").write_text(DATA)
    (tmp_path / "train.py").write_text(SCRIPT.format(made=made, read=read))
    found = convert_project(Source.read(tmp_path / "train.py"))[0]
    (message,) = [f.message for f in found.remaining if f.code == "ACC402"]
    assert words in message
    assert others not in message
