"""What the engine calls proved of random losses, against the gradients of several ranks."""

from __future__ import annotations

import random

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from accelify.knowledge import Knowledge
from accelify.obligations import Status, validate
from tests.heap.losses import SHAPES, is_of_each_row, lines_of, program

KNOWLEDGE = Knowledge()


def status_of(lines: list[str], mode: str = "") -> Status:
    """What is said of the backward pass."""
    text = program(lines, mode)
    (found,) = [one for one in validate(text, None, KNOWLEDGE).obligations if one.demand == "loss"]
    return found.status


@settings(max_examples=300, deadline=None, derandomize=True, suppress_health_check=[*HealthCheck])
@given(
    st.integers(0, 2**32), st.sampled_from(sorted(SHAPES)), st.sampled_from(["", "", "split_batches=True"])
)
def test_what_is_proved_trains_as_one_process(seed: int, kind: str, mode: str) -> None:
    lines = lines_of(random.Random(seed), kind)
    assume(lines)
    right = is_of_each_row(lines, kind)
    assume(right is not None)
    assert right or status_of(lines, mode) is not Status.PROVED, "\n".join(lines)
