"""`.module` of what cannot be followed, in a project whose models lose their DataParallel."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelify.convert import convert_project
from accelify.source import Source

KEEPER = """\
import torch


class Keeper:
    def __init__(self, path, **nets):
        self.path, self.nets = path, nets

    def save(self):
        torch.save({{name: {read} for name, net in self.nets.items()}}, self.path)
"""
TRAIN = """\
import torch
from torch.utils.data import DataLoader, TensorDataset
from keeper import Keeper

nets = {"one": torch.nn.DataParallel(torch.nn.Linear(4, 2)).cuda()}
model = nets["one"]
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(torch.randn(8, 4), torch.ones(8).long()), batch_size=2)
for x, y in loader:
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(x.cuda()), y.cuda()).backward()
    optimizer.step()
Keeper("nets.pt", **nets).save()
"""


@pytest.mark.parametrize(
    ("read", "named"),
    [
        ("net.module.state_dict()", True),
        ("net.module.state_dict() if hasattr(net, 'module') else net.state_dict()", False),
        ("net.state_dict()", False),
    ],
)
def test_it_is_named(tmp_path: Path, read: str, named: bool) -> None:
    (tmp_path / "keeper.py").write_text(KEEPER.format(read=read))
    (tmp_path / "train.py").write_text(TRAIN)
    found = convert_project(Source.read(tmp_path / "train.py"))[0]
    assert found.status == "converted", found.reason
    said = [f.message for f in found.remaining if f.code == "ACC109"]
    assert any("keeper.py, line 9" in message for message in said) is named, said
