"""What one rank's probe has seen at a place, and whether that is what another has."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from accelify.verify.compare.entries import Entry
from accelify.verify.compare.numbers import Match, compare_parsed, compare_values
from accelify.verify.events import RankRecord
from accelify.verify.probes.inserting import RECEIVER

Part = Sequence[Any]
"""A number or a text with its kind in front, as `recording` writes it."""
Call = Sequence[tuple[str, Sequence[Part]]]
"""What was shown there once: by argument its parts."""
_LONGEST = 60


class Values:
    """What one rank had at one place.

    Args:
        rank: its record.
        number: of the probe.
    """

    def __init__(self, rank: RankRecord, number: int) -> None:
        events = [event for event in rank.events.get("probe", ()) if event["number"] == number]
        counts = [event["count"] for event in rank.events.get("probe_count", ()) if event["number"] == number]
        self.calls: list[Call] = [event["values"] for event in events]
        self.steps: list[int] = [event["step"] for event in events]
        self.count: int = max([len(events), *counts])

    def only(self, choose: Callable[[Call], Call]) -> Values:
        """The same with the values that `choose` leaves of each call."""
        self.calls = [choose(call) for call in self.calls]
        return self


def flat(call: Call) -> list[Part]:
    """The numbers and texts of a call that can be compared, without types and the sizes of containers."""
    return [part for _, parts in call for part in parts if part[0] in ("number", "text", "sum", "path")]


def names(call: Call) -> list[str]:
    """The arguments that are there, and what a method belongs to where that can be compared."""
    return [name for name, parts in call if name != RECEIVER or flat([(name, parts)])]


def paths_of(call: Call) -> Call:
    """The values that name a file or a folder: of what a method belongs to where it does, else of arguments."""
    of_receiver = [part for name, parts in call if name == RECEIVER for part in parts if part[0] == "path"]
    if of_receiver:
        return [(RECEIVER, of_receiver)]
    return [
        (name, [part for part in parts if part[0] in ("path", "text")])
        for name, parts in call
        if name != RECEIVER
    ]


def agree(a: Sequence[Call], b: Sequence[Call], tolerance: float) -> bool:
    """Whether two ranks or runs had the same, each time."""
    return len(a) == len(b) and first_difference(a, b, tolerance) is None


def first_difference(a: Sequence[Call], b: Sequence[Call], tolerance: float) -> tuple[int, int] | None:
    """Which call, and which of its parts, is the first that differs; both from 0."""
    for call, (mine, theirs) in enumerate(zip(a, b, strict=False)):
        one, other = _parts(mine), _parts(theirs)
        for number, (part, its) in enumerate(zip(one, other, strict=False)):
            if not _alike(part, its, tolerance):
                return call, number
        if len(one) != len(other):
            return call, min(len(one), len(other))
    return (min(len(a), len(b)), 0) if len(a) != len(b) else None


def shown_part(calls: Sequence[Call], call: int, number: int) -> str:
    """One part in words."""
    parts = _parts(calls[call]) if call < len(calls) else []
    if number >= len(parts):
        return "nothing"
    kind, value = parts[number][:2]
    if kind == "number":
        return f"{value:.6g}" if isinstance(value, float) else str(value)
    if kind == "sum":
        return f"an array whose {parts[number][3]} is {value:.6g}"
    text = " ".join(str(value).split())
    return f'"{text if len(text) <= _LONGEST else text[:_LONGEST] + "..."}"'


def _parts(call: Call) -> list[Part]:
    """All parts but those of what a method belongs to, which conversion may have put in another's place."""
    return [part for name, parts in call if name != RECEIVER or flat([(name, parts)]) for part in parts]


def _alike(a: Part, b: Part, tolerance: float) -> bool:
    if "object" in (a[0], b[0]):
        # What cannot be looked at, a time and what a wrapper represents among it.
        return True
    if a[0] != b[0]:
        return False
    if a[0] == "number":
        if isinstance(a[1], int) and isinstance(b[1], int):
            return a[1] == b[1]
        return compare_values(a[1], b[1], tolerance) <= Match.ROUNDING
    if a[0] == "sum":
        return compare_values(a[1], b[1], tolerance, 10 * max(abs(a[2]), abs(b[2]))) <= Match.ROUNDING
    if a[0] == "text":
        return _same_text(a, b, tolerance)
    return os.path.normpath(a[1]) == os.path.normpath(b[1]) if a[0] == "path" else bool(a[1] == b[1])


def _same_text(a: Part, b: Part, tolerance: float) -> bool:
    """The same words, and numbers equal as far as rounding and the digits shown allow; times are left out."""
    if a[1] == b[1]:
        return True
    if not tolerance:
        return False
    one, other = (Entry(part[1], None, 0, 0, 0, times=part[2]) for part in (a, b))
    skipped = one.clock(one.parsed) | other.clock(other.parsed)
    return compare_parsed(one.parsed, other.parsed, tolerance, skipped=skipped).match <= Match.NEAR
