"""Words for what two runs showed."""

from __future__ import annotations

from collections.abc import Iterable

from accelify.verify.compare.entries import Entry

LONGEST = 90
"""Maximum number of characters of a text in a sentence."""
_PARTS = {2: "half of it", 3: "a third of it", 4: "a quarter of it"}


def shown(entry: Entry) -> str:
    """The text of an entry in quotes, short."""
    text = " ".join(entry.text.split())
    return f'"{text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."}"'


def once(count: int) -> str:
    """How often, in words."""
    return "once" if count == 1 else f"{count} times"


def ordinal(number: int) -> str:
    """Which one, counted from 1."""
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"the {number}{ending}"


def ranks_named(ranks: Iterable[int]) -> str:
    """Several ranks as words of a sentence."""
    *first, last = [str(rank) for rank in sorted(ranks)]
    return f"ranks {', '.join(first)} and {last}" if first else f"rank {last}"


def ratio_reason(value: float, target: float, processes: int) -> str:
    """Where a figure and the original's are apart by the number of processes, what that points to; else nothing."""
    if not target or not value or processes < 2:
        return ""
    ratio = value / target
    if abs(ratio * processes - 1) <= 0.02:
        part = _PARTS.get(processes, f"1/{processes} of it")
        return f": {part}, as where each process has only its share"
    if abs(ratio / processes - 1) <= 0.02:
        times = "twice as much" if processes == 2 else f"{processes} times as much"
        return f": {times}, as where what the processes have is added up"
    return ""
