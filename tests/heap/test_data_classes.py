"""Fields of data classes that each object makes for itself, properties, and sums over what a generator gives."""

from __future__ import annotations

import pytest

from accelify.knowledge import Knowledge
from accelify.obligations import Status, validate

KNOWLEDGE = Knowledge()
TEXT = """\
import torch
from dataclasses import dataclass, field
from torch.utils.data import DataLoader
from accelify.runtime import Accelerator
accelerator = Accelerator()
model, loader = accelerator.prepare(torch.nn.Linear(4, 1), DataLoader(torch.load("d"), batch_size=8))
@dataclass
class Row:
    name: str = field(default="a")
    own: list = field(default_factory=list)
    of_all: list = field(default_factory=list)
    table: dict[str, list] = field(default_factory=dict)
def losses():
    for x, y in loader:
        yield ((model(x) - y) ** 2).mean().item()
row = Row()
for x, y in loader:
    loss = ((model(x) - y) ** 2).mean()
    row.own.append(loss.item())
    row.of_all.append(accelerator.gather(loss).mean().item())
    row.table.setdefault("loss", []).append(accelerator.gather(loss).mean().item())
    one = Row(own=[1])
    one.of_all.append(loss.item())
accelerator.print({shown})
"""


@pytest.mark.parametrize(
    ("shown", "status"),
    [
        ("row.own", Status.NAMED),
        ("sum(row.of_all) / len(row.of_all)", Status.PROVED),
        ("sum(row.table['loss']) / len(row.table['loss'])", Status.PROVED),
        ("row.name", Status.PROVED),
        ("one.own", Status.PROVED),
        ("one.of_all", Status.LOOP),
        ("sum(losses()) / len(loader)", Status.NAMED),
        ("accelerator.reduce(torch.tensor(sum(losses())), reduction='mean') / len(loader)", Status.PROVED),
    ],
)
def test_what_is_shown(shown: str, status: Status) -> None:
    found = validate(TEXT.format(shown=shown), None, KNOWLEDGE).obligations
    assert [one.status for one in found if one.demand == "content"] == [status]


PROPERTY = """\
import torch
from accelify.runtime import Accelerator
accelerator = Accelerator()
class Keeper:
    def __init__(self, top):
        self.top = top
    @property
    def top(self):
        return self._top
    @top.setter
    def top(self, value):
        self._top = value
        self.folder = value + "/models"
keeper = Keeper("runs")
keeper.top = str({top})
accelerator.print(keeper.folder, keeper.top)
"""


@pytest.mark.parametrize(
    ("top", "status"), [("'all'", Status.PROVED), ("accelerator.process_index", Status.NAMED)]
)
def test_a_property_is_set_by_its_setter(top: str, status: Status) -> None:
    found = validate(PROPERTY.format(top=top), None, KNOWLEDGE).obligations
    assert [one.status for one in found if one.demand == "content"] == [status]
