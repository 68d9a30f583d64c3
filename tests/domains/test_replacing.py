"""Objects like others but for some fields: what `dataclasses.replace` gives."""

from __future__ import annotations

import dataclasses

import pytest

from accelify.domains.placement import ROUND_ROWS, SAME, Placement
from accelify.domains.reasons import Reason
from accelify.domains.replacing import replace
from accelify.heap.values import Guard, Value


@pytest.mark.parametrize(
    ("one", "changes"),
    [
        (ROUND_ROWS, {"turned": True, "degree": None}),
        (Value(SAME, type="builtins.int", const=3), {"const": 4}),
        (Guard("main", Reason("only the main process")), {"kind": "others"}),
    ],
)
def test_it_is_what_the_library_gives(one: Placement | Value | Guard, changes: dict[str, object]) -> None:
    before = dataclasses.replace(one)
    assert replace(one, **changes) == dataclasses.replace(one, **changes)
    assert one == before


def test_a_field_that_is_none_is_refused() -> None:
    with pytest.raises(AttributeError):
        replace(ROUND_ROWS, colour="red")
