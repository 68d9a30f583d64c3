"""Times that are chosen by a time, such as what a table of them has so far."""

from __future__ import annotations

import pytest

from accelify.knowledge import Knowledge
from accelify.obligations import Obligation, Status, validate

FRAME = """\
from time import time
from accelify.runtime import Accelerator
accelerator = Accelerator()
spent = {{}}
for epoch in range(3):
    start = time()
    spent["epoch"] = spent["epoch"] if spent.get("epoch") else {first}
    spent["epoch"] += time() - start
    for name, seconds in spent.items():
        accelerator.print(f"{{name}}: {{seconds:.2f}}")
"""


def shown(first: str) -> list[Obligation]:
    checked = validate(FRAME.format(first=first), None, Knowledge())
    assert not checked.unread
    return [one for one in checked.obligations if one.demand == "content"]


def test_a_time_that_begins_where_there_is_none() -> None:
    (one,) = shown("0.0")
    assert one.status is Status.ASSUMED
    assert one.found == "printed: a time"


def test_a_rank_that_is_chosen_by_a_time() -> None:
    (one,) = shown("accelerator.process_index")
    assert one.status is Status.NAMED


LEAVING = """\
import time
import torch
from torch.utils.data import DataLoader
from accelify.runtime import Accelerator
accelerator = Accelerator()
model, loader = accelerator.prepare(torch.nn.Linear(4, 1), DataLoader(torch.load("data.pt"), batch_size=8))
start = time.time()
for x, y in loader:
    accelerator.backward((model(x) - y).mean())
    if {test}:
        break
"""


@pytest.mark.parametrize(
    ("test", "agreed"),
    [
        ("time.time() - start > 10", False),
        ("accelerator.reduce(int(time.time() - start > 10), reduction='max')", True),
        ("accelerator.reduce(time.time() - start, reduction='mean') > 10", True),
    ],
)
def test_all_ranks_leave_by_a_time_that_they_agree_on(test: str, agreed: bool) -> None:
    found = validate(LEAVING.format(test=test), None, Knowledge()).of(Status.NAMED)
    assert [one.demand for one in found] == ["all ranks"] * (not agreed)
