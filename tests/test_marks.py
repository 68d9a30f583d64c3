"""Comments above the places that are left for a person."""

from __future__ import annotations

import pytest

from accelify.convert import convert_source
from accelify.findings import Finding, Safety, Severity
from accelify.marks import mark
from accelify.source import Source
from tests.transforms.support import PATH, frame

LONG = (
    "what is printed is not what it would be on a single process, "
    + "from this rank's batch of `loader`, " * 6
    + "and so on"
)


@pytest.mark.parametrize(
    "way", ["gather it first", "put it together over the processes first (reduce or gather)"]
)
def test_a_comment_that_is_cut_says_what_to_do(way: str) -> None:
    conversion = convert_source(Source(PATH, frame(epoch="print(epoch)")))
    left = Finding(
        str(PATH), 10, 1, "ACC701", "unproved-figure", f"{LONG}; {way}",
        severity=Severity.WARNING, safety=Safety.MANUAL, effort=5, fixable=False,
    )  # fmt: skip
    conversion.remaining.append(left)
    mark([conversion])
    (line,) = [line for line in conversion.new_text.splitlines() if "TODO(accelify" in line]
    # It ends with a clause, not inside of one.
    assert line.endswith(f", from this rank's batch of `loader`; {way}")
    assert len(line.strip()) < 240
