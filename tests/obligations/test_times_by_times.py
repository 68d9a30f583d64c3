"""Times that are chosen by a time, such as what a table of them has so far."""

from __future__ import annotations

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
