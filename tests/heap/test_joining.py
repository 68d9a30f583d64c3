"""A value that is one of two."""

from __future__ import annotations

import pytest

from accelify.domains.placement import ROUND, SAME, UNRELATED
from accelify.domains.reasons import Reason
from accelify.heap.joining import join
from accelify.heap.values import Guard, Library, Value


def test_a_name_of_a_library_is_one_however_often_it_was_asked_for() -> None:
    found = join(
        Value(refs=(Library("sys.last_value"),)), Value(refs=(Library("sys.last_value"), Library("sys")))
    )
    assert found is not None
    assert [ref.name for ref in found.of(Library)] == ["sys.last_value", "sys"]


@pytest.mark.parametrize("share_first", [True, False])
def test_what_is_the_same_on_all_ranks_is_no_reason_for_what_is_not(share_first: bool) -> None:
    share, count = Value(ROUND, Reason("a share")), Value(UNRELATED, Reason("a count"))
    found = join(share, count) if share_first else join(count, share)
    assert found is not None
    assert not found.place.is_uniform
    assert found.why is share.why


@pytest.mark.parametrize("reason", ["broadcast", "loaded"])
def test_what_both_ways_have_of_the_main_process_is_the_same(reason: str) -> None:
    found = join(
        Value(SAME, Reason("broadcast")), Value(SAME, Reason(reason)), Guard("main", Reason("rank == 0"))
    )
    assert found is not None
    assert found.place.is_same == (reason == "broadcast")
