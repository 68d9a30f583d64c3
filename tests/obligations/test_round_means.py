"""Means over the rounds of an evaluation, of which a last, shorter one counts as much as a whole one."""

from __future__ import annotations

import pytest

from accelify.conversion import ConvertOptions
from accelify.convert import convert_source
from accelify.knowledge import Knowledge
from accelify.obligations import validate
from accelify.source import Source
from tests.obligations.round_means import BY_CALLER, BY_SAMPLES, OVER_ROUNDS, script
from tests.transforms.support import PATH

KNOWLEDGE = Knowledge()
CASES = {**OVER_ROUNDS, **BY_CALLER, **{f"samples: {name}": parts for name, parts in BY_SAMPLES.items()}}


@pytest.mark.parametrize("name", CASES)
def test_means_over_rounds_are_noted_and_means_over_samples_are_not(name: str) -> None:
    converted = convert_source(Source.from_text(script(*CASES[name]), PATH), ConvertOptions("per-process"))
    found = validate(converted.new_text, None, KNOWLEDGE)
    # Of the first batches two processes take two each, a mean of means all the same.
    assert bool(found.means) is (not name.startswith("samples") or name == "samples: first batches")
