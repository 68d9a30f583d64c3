"""Comments above the places that are left for a person."""

from __future__ import annotations

import pytest

from accelify.convert import convert_source
from accelify.findings import Finding, Safety, Severity
from accelify.marks import mark, marked_places
from accelify.source import Source
from tests.transforms.support import PATH, frame

LONG = (
    "what is printed is not what it would be on a single process, "
    + "from this rank's batch of `loader`, " * 6
    + "and so on"
)


def comment_of(code: str, name: str, message: str) -> str:
    """What the comment says that a finding leaves in the script."""
    conversion = convert_source(Source(PATH, frame(epoch="print(epoch)")))
    left = Finding(
        str(PATH), 10, 1, code, name, message,
        severity=Severity.WARNING, safety=Safety.MANUAL, effort=5, fixable=False,
    )  # fmt: skip
    conversion.remaining.append(left)
    mark([conversion])
    (place,) = marked_places(Source(PATH, conversion.new_text), [])
    return place.message


@pytest.mark.parametrize(
    "way", ["gather it first", "put it together over the processes first (reduce or gather)"]
)
def test_a_comment_that_is_cut_says_what_to_do(way: str) -> None:
    comment = comment_of("ACC701", "unproved-figure", f"{LONG}; {way}")
    # It ends with a clause, not inside of one.
    assert comment.endswith(f", from this rank's batch of `loader`; {way}")
    assert len(comment) < 240


def test_a_long_way_out_stays_whole() -> None:
    way = "give backward what its rows weigh: `accelerator.backward(loss, weight=(target.reshape(-1) != -100).sum())`"
    comment = comment_of("ACC705", "another-loss", f"the loss is no mean: {LONG}; {way}")
    assert "the loss is no mean: what is printed is not" in comment
    assert comment.endswith(f"; {way}")


def test_a_comment_is_not_cut_within_parentheses() -> None:
    message = f"`f(x` is not there (not done: {LONG}); take the wrapper off first: `model.module`"
    assert comment_of("ACC715", "attribute-of-wrapper", message).endswith(
        "left by `accelify convert`: `f(x` is not there; take the wrapper off first: `model.module`"
    )


@pytest.mark.parametrize(
    ("line", "width"), [("x = 1", 79), (f"x = '{'-' * 90}'", 96), (f"x = '{'-' * 190}'", 120)]
)
def test_comments_are_no_longer_than_the_lines_of_the_script(line: str, width: int) -> None:
    before = frame(epoch="print(epoch)", end=line)
    conversion = convert_source(Source(PATH, before))
    left = Finding(
        str(PATH), 10, 1, "ACC701", "unproved-figure", f"{LONG}; gather it first",
        severity=Severity.WARNING, safety=Safety.MANUAL, effort=5, fixable=False,
    )  # fmt: skip
    conversion.remaining.append(left)
    plain = conversion.new_text
    mark([conversion])
    added = [one for one in conversion.new_text.splitlines() if one not in plain.splitlines()]
    assert len(added) > 1
    assert max(map(len, added)) <= width
    (place,) = marked_places(Source(PATH, conversion.new_text), [])
    assert place.message.startswith(f"left by `accelify convert`: {LONG[:160]}")
    assert place.message.endswith("; gather it first")
