"""What the engine calls proved of random losses, against the gradients of several ranks."""

from __future__ import annotations

import random

import pytest
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


ALIKE = {
    "the larger of two arrays": "torch.max(out, t).mean()",
    "the larger of an array and a weight": "torch.max(out, model.b).mean()",
    "the smaller of an array and a number of the script": "torch.min(out, torch.tensor(0.5)).mean()",
    "a half of each row": "out.chunk(2, dim=-1)[0].mean()",
    "the largest of each row": "out.topk(1, dim=1)[0].mean()",
    "a layer along another axis": "nn.Softmax(dim=1)(out).pow(2).mean()",
}


@pytest.mark.parametrize("kind", ALIKE)
def test_what_goes_row_by_row_is_proved(kind: str) -> None:
    lines = ["out = model(x)", f"loss = {ALIKE[kind]}"]
    assert is_of_each_row(lines, "vectors")
    assert status_of(lines) is Status.PROVED
