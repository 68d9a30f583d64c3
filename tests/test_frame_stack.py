"""Room for frames: deep calls do not take memory from the system again and again."""

from __future__ import annotations

import pytest

from accelify.frame_stack import with_room

resource = pytest.importorskip("resource")  # not on Windows
CALLS, DEPTHS = 200, 400


def _leaf() -> None:
    pass


def _at(depth: int) -> None:
    """Calls of a small function, so deep."""
    if depth:
        _at(depth - 1)
        return
    for _ in range(CALLS):
        _leaf()


def _most_faults() -> int:
    """The most pages that the system had to give for the calls at one depth, going over several chunks' ends."""
    most = 0
    for depth in range(DEPTHS):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        _at(depth)
        most = max(most, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
    return most


def test_calls_at_a_chunk_s_end_take_no_memory_each() -> None:
    _most_faults()
    if _most_faults() < CALLS // 2:
        pytest.skip("this interpreter has no chunks of frames, or gives none back")
    assert with_room(_most_faults) < CALLS // 2


def test_what_the_work_gives_or_raises_comes_through() -> None:
    assert with_room(lambda: [1]) == [1]
    with pytest.raises(RecursionError, match="so deep"):
        with_room(_raises)


def _raises() -> None:
    raise RecursionError("so deep")
