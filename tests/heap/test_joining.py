"""A value that is one of two."""

from __future__ import annotations

from accelify.heap.joining import join
from accelify.heap.values import Library, Value


def test_a_name_of_a_library_is_one_however_often_it_was_asked_for() -> None:
    found = join(
        Value(refs=(Library("sys.last_value"),)), Value(refs=(Library("sys.last_value"), Library("sys")))
    )
    assert found is not None
    assert [ref.name for ref in found.of(Library)] == ["sys.last_value", "sys"]
