"""What runs have shown, as texts in order by place: the lines they printed and the values they logged."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from accelify.verify.compare.numbers import Parsed, covered, normal, parse
from accelify.verify.compare.verdict import Site
from accelify.verify.events import RankRecord
from accelify.verify.lines import LineMap
from accelify.verify.runs import Run

Key = tuple[Site | None, str, str]
"""A place in the original, "" or "new" for one in the converted script only, and the tag of what is logged there."""


@dataclass
class Entry:
    """One text that one rank showed at one place.

    `times` are stretches of it that were made of a clock, `calls` the number of backward calls before it and `number`
    its position among all events of its rank. `loop` says that it was shown inside the loop that took the last batch,
    `runtime` that the runtime spoke for itself, `worker` that a worker process of a loader did. `at` is the step that
    it was logged for.
    """

    text: str
    site: Site | None
    rank: int
    number: int
    calls: int
    loop: bool = False
    runtime: bool = False
    worker: bool = False
    times: list[list[int]] = field(default_factory=list)
    at: str = ""

    @cached_property
    def parsed(self) -> Parsed:
        """Words and numbers, without the operations that made tensors."""
        return parse(self._without_times(normal(self.text, True)))

    @cached_property
    def exact(self) -> Parsed:
        """Words and numbers, as they are."""
        return parse(self._without_times(normal(self.text)))

    def clock(self, parsed: Parsed) -> set[int]:
        """Positions of the numbers that were made of a clock."""
        if not self.times:
            return set()
        return {
            k
            for k, number in enumerate(parsed.numbers)
            if any(start < number.end and number.start < end for start, end in self.times)
        }

    def _without_times(self, text: str) -> str:
        for start, end in self.times:
            if any(letter.isalpha() for letter in text[start:end].replace("e", "")):
                text = covered(text, start, end)
        return text


Groups = dict[Key, list[Entry]]


def entries(rank: RankRecord, number: int, kinds: Iterable[str]) -> list[Entry]:
    """What one rank showed, in order, as far as events of these kinds say."""
    calls = [event["n"] for event in rank.events.get("loss", [])]
    found = [event for kind in kinds for event in rank.events.get(kind, [])]
    return [_entry(event, number, bisect_left(calls, event["n"])) for event in sorted(found, key=_number)]


def _entry(event: dict[str, Any], rank: int, calls: int) -> Entry:
    site = event.get("site")
    return Entry(
        text=str(event["text"]),
        site=None if site is None else (str(site[0]), int(site[1])),
        rank=rank,
        number=event["n"],
        calls=calls,
        loop=bool(event.get("loop")),
        runtime=bool(event.get("runtime")),
        worker=bool(event.get("worker")),
        times=event.get("times") or [],
        at=str(event.get("at", "")),
    )


def grouped(
    run: Run,
    kinds: Iterable[str],
    lines: LineMap | None = None,
    tag: Callable[[dict[str, Any]], str] = lambda _: "",
) -> Groups:
    """Everything that a run showed by place, the ranks one after another.

    Args:
        kinds: of events.
        lines: takes places of a converted script to the original's; None for the original.
        tag: what else distinguishes the texts that are shown at one place.
    """
    groups: Groups = {}
    for number, rank in enumerate(run.ranks):
        found = sorted((event for kind in kinds for event in rank.events.get(kind, [])), key=_number)
        for entry, event in zip(entries(rank, number, kinds), found, strict=True):
            place, new = entry.site, ""
            if lines is not None and place is not None:
                mapped = lines.original(place)
                place, new = (place, "new") if mapped is None else (mapped, "")
            groups.setdefault((place, new, tag(event)), []).append(entry)
    return groups


def _number(event: dict[str, Any]) -> int:
    number: int = event["n"]
    return number


def by_rank(found: Iterable[Entry]) -> dict[int, list[Entry]]:
    """The entries of each rank that has any."""
    ranks: dict[int, list[Entry]] = {}
    for entry in found:
        ranks.setdefault(entry.rank, []).append(entry)
    return ranks


def pair_moved(original: Groups, other: Groups) -> Groups:
    """`other` with places that correspond to no line of the original put where the same words are shown.

    A statement that was changed a lot has no counterpart by its text. Where one place of the original shows nothing in
    the converted run, and one that has no counterpart shows the same words, the two are the same place.
    """
    missing = {key: found for key, found in original.items() if key not in other}
    result: Groups = {}
    for key, found in other.items():
        target = key
        if key[1] == "new":
            for candidate, mine in missing.items():
                same_words = mine[0].parsed.skeleton == found[0].parsed.skeleton
                if same_words and candidate[2] == key[2] and candidate not in result:
                    target = candidate
                    break
        result.setdefault(target, []).extend(found)
    return result
