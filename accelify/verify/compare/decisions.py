"""Decisions that guard training: the same outcomes in the same order on every rank, and in the original."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from accelify.verify.compare.verdict import Check, Site, Verdict
from accelify.verify.events import RankRecord
from accelify.verify.lines import LineMap
from accelify.verify.runs import Run

Place = tuple[str, int, str, int]
"""File, line, kind of decision, and which of that kind on that line."""

APART = 0.25
"""Share by which two rates of an outcome may differ, where by less than one occurrence anyway."""
SHARED_OUT = 1.5
"""From this ratio of rounds on, a rank is taken to process only its share of the original's data."""
_NAMES = {
    "if": "`if`",
    "while": "`while`",
    "choice": "conditional expression",
    "assert": "`assert`",
    "except": "handler",
}


@dataclass
class Outcomes:
    """What one rank decided at one place. `runs` are lengths of equal outcomes, negative for those that were false."""

    site: Site
    runs: Sequence[int] = ()
    digest: int = 0
    calls: int = 0
    yes: int = 0
    flags: frozenset[str] = frozenset()
    trained: tuple[int, ...] = (0, 0, 0)

    @property
    def strong(self) -> bool:
        """Whether training ran inside, or inside of what is left from here."""
        return bool(self.trained[0] or self.trained[1] or self.trained[2])

    def first(self, outcome: bool) -> int | None:
        """At which call, from 1, the outcome came first; None where it never did."""
        position = 1
        for run in self.runs:
            if (run > 0) is outcome and run:
                return position
            position += abs(run)
        return None


@dataclass
class _Place:
    """One place in the converted script, and its counterpart."""

    place: Place
    ranks: list[Outcomes]
    original: Outcomes | None
    where: str
    """Where a user finds it: `line 3`."""
    flags: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        sides = [*self.ranks, *([self.original] if self.original else [])]
        self.flags = frozenset().union(*(side.flags for side in self.ranks))
        self.strong = any(
            side.strong and (side.trained[0] or side.trained[1] or self._leaves) for side in sides
        )

    @property
    def _leaves(self) -> bool:
        return "leaves" in self.flags or self.place[2] == "except"

    @property
    def site(self) -> Site:
        return self.place[:2]

    @property
    def name(self) -> str:
        return f"the {_NAMES[self.place[2]]} in {self.where}"


def compare(original: Run, other: Run, lines: LineMap, exact: bool) -> list[Check]:
    """One check for each place where training depends on the outcome.

    `original` may have batches N times as large; then it makes as many rounds as each of the N processes.
    """
    before = outcomes_of(original.ranks[0])
    after = [outcomes_of(record) for record in other.ranks]
    checks = []
    for key in dict.fromkeys(key for rank in after for key in rank):
        origin = lines.original(key[:2])
        counterpart = before.get((*origin, *key[2:])) if origin is not None else None
        found = [rank.get(key, Outcomes(key[:2])) for rank in after]
        place = _Place(key, found, counterpart, lines.within(key[:2]))
        if place.strong or place.flags & {"trains", "carries", "saves"}:
            checks += _compared(place, origin, other, exact)
    return checks


def by_rounds(original: Run, other: Run, lines: LineMap) -> list[Check]:
    """Conditions around training that count each process's rounds, as far as the share of rounds shows it.

    Args:
        original: the original in its own batches, not larger ones, which makes about N times as many rounds.
        other: a run on N processes, each of which takes batches as large.
        lines: of the converted script.
    """
    before, checks = outcomes_of(original.ranks[0]), []
    for key, outcomes in outcomes_of(other.ranks[0]).items():
        origin = lines.original(key[:2])
        counterpart = before.get((*origin, *key[2:])) if origin is not None else None
        if origin is None or counterpart is None or counterpart.calls < SHARED_OUT * outcomes.calls:
            continue
        place = _Place(key, [outcomes], counterpart, lines.within(key[:2]))
        # Where training is left for good, how many rounds there are says nothing of a period.
        if outcomes.trained[0] and (sentence := _rates(place, counterpart, outcomes)):
            name = f"{origin[0]}:{origin[1]} rounds {key[3]}"
            checks.append(Check("decisions", name, Verdict.DIFFERENT, sentence, place.site, origin))
    return checks


def outcomes_of(record: RankRecord) -> dict[Place, Outcomes]:
    """The last that a rank wrote of each of its places."""
    found: dict[Place, Outcomes] = {}
    for event in record.events.get("decision", []):
        site = (str(event["site"][0]), int(event["site"][1]))
        found[(*site, event["kind"], event["nth"])] = _outcomes(site, event)
    return found


def _outcomes(site: Site, event: dict[str, Any]) -> Outcomes:
    return Outcomes(
        site, event["runs"], event["digest"], event["calls"], event["yes"], frozenset(event["flags"]),
        tuple(event["trained"]),
    )  # fmt: skip


def _compared(place: _Place, origin: Site | None, other: Run, exact: bool) -> list[Check]:
    named = origin if place.original is not None and origin is not None else place.site
    key = f"{named[0]}:{named[1]} {place.place[2]} {place.place[3]}"
    sentence = _between_ranks(place, other) or _against_original(place, other, exact)
    if sentence is None:
        return []
    verdict = Verdict.DIFFERENT if sentence else Verdict.EQUAL
    return [Check("decisions", key, verdict, sentence, place.site, origin if place.original else None)]


def _between_ranks(place: _Place, other: Run) -> str:
    """What differs between ranks; empty for nothing."""
    first = place.ranks[0]
    only_saves = not place.strong and not place.flags & {"trains", "carries"}
    if only_saves or ("by_rank" in place.flags and not _trains_by_rank(place)):
        # One rank does it for all; whether it does is a question of effects.
        return ""
    if not place.strong and place.original is None:
        return ""
    for number, rank in enumerate(place.ranks[1:], 1):
        position = first_difference(first, rank)
        if position is not None:
            yes = 0 if _at(first, position) else number
            no = number if yes == 0 else 0
            return (
                f"{place.name} was taken on rank {yes} at its {_nth(position)} time, not on rank {no}"
                f"{_in_original(place)}"
            )
        if first.calls != rank.calls and place.strong and not other.failure:
            return f"rank 0 came to {place.name} {first.calls} times, rank {number} {rank.calls} times" + (
                f"; in the original {place.original.calls} times" if place.original else ""
            )
    return ""


def _trains_by_rank(place: _Place) -> bool:
    return len({rank.trained for rank in place.ranks}) > 1 and place.strong


def _in_original(place: _Place) -> str:
    if place.original is None:
        return ""
    first = place.original.first(True)
    return "; in the original never" if first is None else f"; in the original first at the {_nth(first)}"


def _against_original(place: _Place, other: Run, exact: bool) -> str | None:
    """What differs from the original; None where the two cannot be compared."""
    before, after = place.original, place.ranks[0]
    if before is None:
        return "" if place.strong else None
    if "by_rank" in place.flags and "by_rank" not in before.flags:
        # The test asks for more than the original's; one rank takes it.
        after = max(place.ranks, key=lambda rank: rank.yes)
    if before.calls == after.calls or exact:
        position = first_difference(before, after)
        if position is not None:
            taken, side = (
                ("taken", "not in the original")
                if _at(after, position)
                else ("not taken", "but in the original")
            )
            return f"{place.name} was {taken} at its {_nth(position)} time, {side}"
        if before.calls != after.calls and not other.failure:
            return f"{place.name} was come to {after.calls} times, in the original {before.calls} times"
        return (
            ""
            if before.digest == after.digest
            else f"{place.name} was taken in another order than in the original"
        )
    if not place.strong or other.failure:
        return None
    return _ended(place, before, after) or _rates(place, before, after)


def _ended(place: _Place, before: Outcomes, after: Outcomes) -> str:
    """A loop that is left for good is left in the original's round."""
    if "ends" not in place.flags or place.place[2] in ("while", "assert"):
        return ""
    first, own = before.first(True), after.first(True)
    if first == own or (first is None and own is None):
        return ""
    if own is None:
        if first is not None and first <= after.calls:
            return f"{place.name} was never taken, in the original at the {_nth(first)} time"
        return ""
    reported = f"first at the {_nth(first)}" if first is not None else "never"
    return f"{place.name} was taken at its {_nth(own)} time, in the original {reported}"


def _rates(place: _Place, before: Outcomes, after: Outcomes) -> str:
    """Rounds that differ in number: the same share of them has to have the same outcome."""
    ratio = max(before.calls, after.calls) / max(1, min(before.calls, after.calls))
    if place.place[2] in ("while", "assert") or not (
        after.trained[0] or after.trained[1] or "leaves" in place.flags
    ):
        return ""
    wanted, found = before.yes / max(1, before.calls), after.yes / max(1, after.calls)
    expected = wanted * after.calls
    if ratio >= 1 and abs(found - wanted) > APART * max(wanted, 1e-9) and abs(expected - after.yes) >= 1:
        return (
            f"{place.name} was taken in {after.yes} of {after.calls} rounds, in the original in {before.yes} of "
            f"{before.calls}: it counts each process's rounds"
        )
    return ""


def first_difference(first: Outcomes, second: Outcomes) -> int | None:
    """The first call, from 1, at which two have different outcomes; None where one goes on as the other began."""
    position, a, b = 1, [*first.runs], [*second.runs]
    i = j = 0
    left = right = 0
    while True:
        if not left:
            if i >= len(a):
                return None
            left, i = a[i], i + 1
        if not right:
            if j >= len(b):
                return None
            right, j = b[j], j + 1
        if (left > 0) is not (right > 0):
            return position
        step = min(abs(left), abs(right))
        position += step
        left -= step if left > 0 else -step
        right -= step if right > 0 else -step


def _at(outcomes: Outcomes, position: int) -> bool:
    for run in outcomes.runs:
        position -= abs(run)
        if position <= 0:
            return run > 0
    return False


def _nth(number: int) -> str:
    if number % 100 in (11, 12, 13):
        return f"{number}th"
    return f"{number}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th') }"
