"""Everything that a run shows compared with the original's, place by place: printed lines, logged values, bars.

Each place of the original's script is one check, with what all ranks showed there. Outside of loops over loaders a
figure has to be the original's. Inside, the main process has a share of the batch only, and a figure of that share
is not comparable unless what the processes have evaluated refutes that it is one.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from accelify.verify.compare.entries import Entry, Groups, Key, by_rank, grouped, pair_moved
from accelify.verify.compare.losses import GROWTH, LOSS_TOLERANCE, tolerances
from accelify.verify.compare.numbers import Compared, Match, Parsed, compare_parsed
from accelify.verify.compare.shares import Share, Shares
from accelify.verify.compare.verdict import NOT_CHECKED, SHARE, Check, Verdict, worst
from accelify.verify.compare.wording import once, ordinal, ranks_named, ratio_reason, shown
from accelify.verify.lines import LineMap
from accelify.verify.runs import Run

RARE = 20
"""One number in this many may step to the next digit shown where rounding makes that unlikely."""
ALIKE = (
    "counts the rounds of all processes alike, though their shares of a batch are not of one size: nearly the "
    "original's figure; weigh each by its samples"
)
_OR_TOTAL = ", or convert with --batch-size total"
WEIGHED_ALIKE = (
    "counts the losses of all processes alike, though `backward` weighs them by `weight=`: nearly the original's "
    "figure; weigh each by the same"
)
UNREPEATED = "two runs of the original itself differ here"


@dataclass(frozen=True)
class _Subject:
    """What is compared: which events, and the words for it."""

    aspect: str
    kinds: tuple[str, ...]
    would: tuple[str, ...]
    past: str
    present: str
    tag: Callable[[dict[str, Any]], str] = lambda _: ""


def _tag(event: dict[str, Any]) -> str:
    return str(event.get("tag", ""))


SUBJECTS = (
    _Subject("printed", ("line",), ("would_print",), "printed", "prints"),
    _Subject("printed", ("bar",), (), "shown as a progress bar:", "shows"),
    _Subject("logged", ("scalar",), ("would_log",), "logged", "logs", _tag),
)


def compare(
    original: Run,
    other: Run,
    lines: LineMap,
    exact: bool,
    *,
    repeats: tuple[Run, Run] | None = None,
    base: float | None = None,
) -> list[Check]:
    """Compare what `other` printed and logged with the original's.

    Args:
        lines: which place of the original a place in the other's script is.
        exact: every text has to be the same to the letter, but for what a clock shows.
        repeats: two runs of the original in the same way. The numbers in which they differ are not compared.
        base: relative difference that rounding explains at any step; taken from the precision when None, and then
            growing with the steps.
    """
    checks: list[Check] = []
    for subject in SUBJECTS:
        checks += _Comparison(subject, original, other, lines, exact, repeats, base).checks()
    return checks


def shares_shown(original: Run, other: Run, lines: LineMap) -> Callable[[float, float], str]:
    """Why a figure of the original is shown as another one inside a training loop; empty where it is not.

    What trackers and tables write to files has no place in the script any more, only its value: the verdict on it is
    the one on the figure in the script.
    """
    reasons: dict[tuple[float, float], str] = {}
    for subject in SUBJECTS if other.processes > 1 else ():
        comparison = _Comparison(subject, original, other, lines, False, None, None)
        comparison.checks()
        # A pair that is shown twice is as good as what is known of it where most is.
        reasons |= {pair: why for pair, why in comparison.excused.items() if reasons.get(pair) != SHARE}
    return lambda a, b: min(
        (why for (x, y), why in reasons.items() if _shows(a, x) and _shows(b, y)),
        key=NOT_CHECKED.__eq__,
        default="",
    )


def _shows(written: float, value: float) -> bool:
    """Whether a number that was written with few digits, or in single precision, is `value`."""
    decimals = len(repr(written).partition("e")[0].partition(".")[2])
    return abs(written - value) <= 0.51 * 10.0**-decimals + 1e-6 * abs(value)


class _Comparison:
    """One subject of two runs."""

    def __init__(
        self,
        subject: _Subject,
        original: Run,
        other: Run,
        lines: LineMap,
        exact: bool,
        repeats: tuple[Run, Run] | None,
        base: float | None,
    ) -> None:
        self.subject = subject
        self.run = other
        self.lines = lines
        self.exact = exact
        self.base = base if base is not None else (tolerances(original) or [LOSS_TOLERANCE])[0]
        self.growth = GROWTH if base is None else 0.0
        self.original = grouped(original, subject.kinds, None, subject.tag)
        self.other = pair_moved(self.original, grouped(other, subject.kinds, lines, subject.tag))
        self.would: Groups = grouped(other, subject.would, lines, subject.tag) if subject.would else {}
        self.varying = self._varying(*repeats) if repeats else {}
        self.excused: dict[tuple[float, float], str] = {}
        self.shares = Shares(original, other, self.base * (1 + self.growth * len(original.losses)))

    def checks(self) -> list[Check]:
        found = []
        for key in dict.fromkeys([*self.original, *self.other]):
            mine = self.original.get(key, [])
            theirs = [entry for entry in self.other.get(key, []) if not entry.runtime]
            if not mine and not theirs:
                continue
            verdict, sentence = self._compare(key, mine, theirs)
            place, new, _ = key
            check = Check(self.subject.aspect, self._key(key), verdict, sentence)
            check.original = None if new else place
            check.line = theirs[0].site if theirs else self.lines.converted(place)
            found.append(check)
        if all(check.verdict is not Verdict.DIFFERENT for check in found) and (order := self._order()):
            found.append(order)
        return found

    def _key(self, key: Key) -> str:
        place, new, tag = key
        named = f"{place[0]}:{place[1]}" if place else "elsewhere"
        kind = self.subject.kinds[0]
        return " ".join(filter(None, [named, new, "" if kind == "line" else kind, tag]))

    # One place -------------------------------------------------------------------------------------------------

    def _compare(self, key: Key, mine: list[Entry], theirs: list[Entry]) -> tuple[Verdict, str]:
        past, present = self.subject.past, self.subject.present
        if self.varying.get(key, {}) is None:
            return Verdict.NOT_COMPARABLE, UNREPEATED
        if not theirs:
            if self.run.failure:
                return Verdict.NOT_REACHED, "the run failed before it came here"
            return Verdict.DIFFERENT, f"the original {present} {shown(mine[0])}, this run does not"
        ranks = by_rank(theirs)
        if not mine:
            who = f" (by {ranks_named(ranks)})" if len(ranks) > 1 else ""
            return Verdict.DIFFERENT, f"{past} {shown(theirs[0])}{who}, which the original does not"
        mixed = len(ranks) > 1 or any(entry.worker for entry in (*mine, *theirs))
        if mixed and len(theirs) == len(mine) and (verdict := self._as_bag(mine, theirs)):
            return verdict, ""
        if len(ranks) > 1 and not (self.run.failure and len(theirs) <= len(mine)):
            counts = {len(found) for found in ranks.values()}
            each = counts == {len(mine)} and len(mine) > 1
            times = f"{len(ranks)} times each" if each else once(len(theirs))
            of_one = "once each" if each else once(len(mine))
            sentence = (
                f"{past} {times} (by {ranks_named(ranks)}), {of_one} in the original: {shown(theirs[0])}"
            )
            return Verdict.DIFFERENT, sentence
        if len(mine) != len(theirs) and not (self.run.failure and len(theirs) < len(mine)):
            where = next(
                (k for k, pair in enumerate(zip(mine, theirs, strict=False)) if self._differs(*pair)), None
            )
            extra = f"; first {self._pair(mine, theirs, where)}" if where is not None else ""
            return Verdict.DIFFERENT, f"{past} {once(len(theirs))}, {once(len(mine))} in the original{extra}"
        return self._in_order(key, mine, theirs)

    def _in_order(self, key: Key, mine: list[Entry], theirs: list[Entry]) -> tuple[Verdict, str]:
        sizes = _usual_sizes(mine)
        verdicts, first = [Verdict.EQUAL], ""
        stepped: list[int] = []
        numbers = 0
        for k, (a, b) in enumerate(zip(mine, theirs, strict=False)):
            compared = self._contained(a, b, sizes.get(a.parsed.skeleton, []), self._skipped(key, a))
            numbers += sum(not number.whole for number in a.parsed.numbers)
            verdict, reason = Verdict.EQUAL, ""
            if a.at != b.at:
                verdict, reason = Verdict.DIFFERENT, f": for step {b.at}, in the original for step {a.at}"
            elif compared.match is Match.DIFFERENT:
                verdict, reason = self._judged(key, a, b, compared, k)
            elif compared.match is Match.NEAR:
                stepped.append(k)
                verdict = Verdict.ROUNDING
            elif compared.match is Match.ROUNDING:
                verdict = Verdict.ROUNDING
            if _heavier(verdict, verdicts):
                first = f"{self._pair(mine, theirs, k)}{reason}" if verdict is Verdict.DIFFERENT else reason
            verdicts.append(verdict)
        if stepped and len(stepped) * RARE > numbers:
            # Too many of them step for rounding: these are other figures.
            k = stepped[0]
            compared = self._contained(mine[k], theirs[k], [], self._skipped(key, mine[k]))
            verdict, reason = self._judged(key, mine[k], theirs[k], compared, k)
            if _heavier(verdict, verdicts):
                first = f"{self._pair(mine, theirs, k)}{reason}" if verdict is Verdict.DIFFERENT else reason
            verdicts.append(verdict)
        return worst(verdicts), first

    def _contained(self, a: Entry, b: Entry, sizes: Sequence[float], skipped: set[int]) -> Compared:
        """One entry against another. What both have from a clock is not compared."""
        if a.text == b.text:
            return Compared(Match.SAME, True, ())
        x, y = self._form(a), self._form(b)
        skipped = skipped | (a.clock(x) & b.clock(y))
        if not self.exact:
            return compare_parsed(x, y, self.base * (1 + self.growth * a.calls), sizes, skipped)
        compared = compare_parsed(x, y, 0.0, (), skipped)
        pairs = enumerate(zip(x.numbers, y.numbers, strict=False))
        same = all(m.text == n.text for k, (m, n) in pairs if k not in skipped)
        match = Match.SAME if same and compared.match is Match.SAME else Match.DIFFERENT
        return Compared(match, compared.words, compared.matches)

    def _form(self, entry: Entry) -> Parsed:
        return entry.exact if self.exact else entry.parsed

    def _differs(self, a: Entry, b: Entry) -> bool:
        return self._contained(a, b, [], set()).match >= Match.NEAR

    def _judged(
        self, key: Key, a: Entry, b: Entry, compared: Compared, occurrence: int
    ) -> tuple[Verdict, str]:
        """The verdict on a difference, and its likely cause."""
        if self.run.processes == 1:
            return Verdict.DIFFERENT, ""
        everyone = self._everyone(key, b, occurrence)
        positions = compared.differing or []
        if b.loop and not b.worker:
            if not compared.words:
                return Verdict.NOT_COMPARABLE, NOT_CHECKED
            share = max((self.shares.judge(a, b, k, everyone) for k in positions), default=Share.UNKNOWN)
            if share is not Share.REFUTED:
                numbers = a.parsed.numbers, b.parsed.numbers
                reason = SHARE if share is Share.SHOWN else NOT_CHECKED
                self.excused |= {(numbers[0][k].value, numbers[1][k].value): reason for k in positions}
                return Verdict.NOT_COMPARABLE, reason
        if not compared.words or not positions:
            return Verdict.DIFFERENT, ""
        if all(self.shares.is_batch_loss(a, b, k) for k in positions):
            return Verdict.NOT_COMPARABLE, SHARE
        before = [entry.calls for entry in self.original.get(key, []) if entry.number < a.number]
        if all(self.shares.rounds_alike(a, b, k, max(before, default=0)) for k in positions):
            return Verdict.NOT_COMPARABLE, self._alike()
        k = positions[0]
        target, value = a.parsed.numbers[k], b.parsed.numbers[k]
        if together := self.shares.of_everyone(target, everyone, k):
            return Verdict.DIFFERENT, f": the {together} over the processes would be the original's"
        if self.shares.is_own_loss(a, b, k):
            return Verdict.DIFFERENT, f": the loss of process {b.rank}'s share alone"
        return Verdict.DIFFERENT, ratio_reason(value.value, target.value, self.run.processes)

    def _alike(self) -> str:
        if not self.shares.uneven:
            return WEIGHED_ALIKE
        return ALIKE if self.shares.total else f"{ALIKE}{_OR_TOTAL}"

    def _everyone(self, key: Key, entry: Entry, occurrence: int) -> list[Entry]:
        """What each process evaluated at that occurrence, where all are known to have."""
        others = by_rank(self.would.get(key, []))
        others.pop(entry.rank, None)
        found = [entry, *(ranked[occurrence] for ranked in others.values() if occurrence < len(ranked))]
        if len({one.rank for one in found}) < self.run.processes:
            return []
        return sorted(found, key=lambda one: one.rank)

    def _pair(self, mine: list[Entry], theirs: list[Entry], k: int) -> str:
        which = f" ({ordinal(k + 1)} of {len(mine)})" if len(mine) > 1 else ""
        subject = self.subject
        return (
            f"{subject.past} {shown(theirs[k])} where the original {subject.present} {shown(mine[k])}{which}"
        )

    # Several at once -------------------------------------------------------------------------------------------

    def _as_bag(self, mine: list[Entry], theirs: list[Entry]) -> Verdict | None:
        """The verdict where each text of one run is one of the other's in some order, None where it is not so."""
        if Counter(entry.text for entry in mine) == Counter(entry.text for entry in theirs):
            return Verdict.EQUAL
        if len(mine) > 10 * RARE:
            return None
        left = list(theirs)
        for a in mine:
            b = next((b for b in left if self._contained(a, b, [], set()).match <= Match.ROUNDING), None)
            if b is None:
                return None
            left.remove(b)
        return Verdict.ROUNDING

    def _varying(self, first: Run, second: Run) -> dict[Key, dict[str, set[int]] | None]:
        """By place and words the numbers in which two runs of one script differ; None for one with other words."""
        found: dict[Key, dict[str, set[int]] | None] = {}
        mine, again = (grouped(run, self.subject.kinds, None, self.subject.tag) for run in (first, second))
        for key in {**mine, **again}:
            a, b = mine.get(key, []), again.get(key, [])
            columns: dict[str, set[int]] | None = {} if len(a) == len(b) else None
            for x, y in zip(map(self._form, a), map(self._form, b), strict=False):
                if columns is None or x.words != y.words:
                    columns = None
                    break
                pairs = enumerate(zip(x.numbers, y.numbers, strict=True))
                columns.setdefault(x.skeleton, set()).update(k for k, (m, n) in pairs if m.text != n.text)
            found[key] = columns
        return found

    def _skipped(self, key: Key, entry: Entry) -> set[int]:
        """The numbers of an entry that no other run of the original repeats."""
        return (self.varying.get(key) or {}).get(self._form(entry).skeleton, set())

    def _order(self) -> Check | None:
        """The first place where a rank shows in another order than the original."""
        counts = {key: len(found) for key, found in self.original.items()}
        if self.run.failure:
            return None
        sequence = _sequence(self.original)
        for rank in range(self.run.processes):
            ranked: Groups = {}
            for key, found in self.other.items():
                of_rank = [
                    entry for entry in found if entry.rank == rank and not entry.worker and not entry.runtime
                ]
                if len(of_rank) == counts.get(key):
                    ranked[key] = of_rank
            expected = [key for key in sequence if key in ranked]
            for key, other in zip(expected, _sequence(ranked), strict=True):
                if key != other:
                    a, b = self.original[key][0], ranked[other][0]
                    sentence = f"{shown(b)} comes before {shown(a)}, in the original after it"
                    kind = " ".join(filter(None, ["order", *self.subject.kinds]))
                    return Check(self.subject.aspect, kind, Verdict.DIFFERENT, sentence, b.site, key[0])
        return None


def _sequence(groups: Groups) -> list[Key]:
    """The places in the order in which one rank showed something there; the order of worker processes is separate."""
    found = [(entry.number, key) for key, shown in groups.items() for entry in shown if not entry.worker]
    return [key for _, key in sorted(found, key=lambda pair: pair[0])]


def _usual_sizes(mine: Sequence[Entry]) -> dict[str, list[float]]:
    """The usual values of the numbers in texts with the same words, where there are several such texts."""
    sizes: dict[str, list[list[float]]] = {}
    for entry in mine:
        row = [abs(number.value) for number in entry.parsed.numbers]
        if all(map(math.isfinite, row)):
            sizes.setdefault(entry.parsed.skeleton, []).append(row)
    return {
        words: [median(column) for column in zip(*rows, strict=True)]
        for words, rows in sizes.items()
        if len(rows) > 1
    }


def _heavier(verdict: Verdict, verdicts: Sequence[Verdict]) -> bool:
    """Whether a verdict is worse than all before it."""
    return worst([*verdicts, verdict]) is not worst(list(verdicts))
