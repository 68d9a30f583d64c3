"""Where the engine calls it proved that all ranks meet, against threads in place of ranks."""

from __future__ import annotations

import random

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from accelify.knowledge import Knowledge
from accelify.obligations import Status, validate
from tests.heap.ways import Writer, all_meet, goes_through

KNOWLEDGE = Knowledge()


def is_proved(text: str) -> bool:
    found = validate(text, None, KNOWLEDGE).obligations
    return not any(one.status is Status.NAMED for one in found if one.demand in ("all ranks", "same"))


@settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=[*HealthCheck])
@given(st.integers(0, 2**32))
def test_ranks_that_are_proved_to_meet_do(seed: int) -> None:
    text = Writer(random.Random(seed)).program()
    # Only what is proved is run: ranks that do not meet wait for each other.
    assume(is_proved(text) and goes_through(text))
    assert all_meet(text), text
