"""Fields of data classes that each object makes for itself, and sums over what a generator gives round for round."""

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
