"""Nested values of files compared with each other: what is in one place is compared by its type."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from accelify.verify.compare.arrays import Array, compare_arrays
from accelify.verify.compare.numbers import Match, compare_parsed, compare_values, normal, parse

RARE = 20
"""One number of a text in this many may step to the next digit where rounding makes that unlikely."""
MOST = 1000
"""Differences of one file that are looked at."""
PREFIX = "module."
# What the state of a scheduler of torch's has.
_SCHEDULE = frozenset({"last_epoch", "_step_count"})
Excuse = Callable[[float, float], str]


@dataclass(frozen=True)
class Text:
    """A text whose numbers count as numbers."""

    content: str


@dataclass
class Comparison:
    """The result of comparing one document with another.

    Args:
        tolerance: relative difference that rounding explains.
        drift: the same for tensors, which carry the rounding of all updates.
        exact: nothing is put down to rounding.
        excuse: why a number of the original may be another one; empty where it may not.
        own_units: schedules may count in other units than the original's: the rates that they give are compared by
            themselves.
    """

    tolerance: float
    exact: bool
    excuse: Excuse = lambda a, b: ""
    drift: float = 0.0
    own_units: bool = False
    match: Match = Match.SAME
    first: str = ""
    count: int = 0
    excused: set[str] = field(default_factory=set)
    """Why numbers differ that may."""
    pair: tuple[float, float] | None = None
    """The first two numbers that differ."""
    numbers: int = 0
    """Numbers in texts so far."""
    steps: list[tuple[str, str]] = field(default_factory=list)
    """Where one of them is the next one to the original's as far as it is shown."""
    _seen: set[tuple[int, int]] = field(default_factory=set)

    def hold(self, a: Any, b: Any, where: str = "", disturbed: Any = None) -> None:
        """Compare `b` with the original's `a`, which is at `where` in the file.

        `disturbed` is what is there in a run of the original whose gradients were disturbed as by rounding.
        """
        if self.count >= MOST:
            return
        if isinstance(a, Array) or isinstance(b, Array):
            self._arrays(a, b, where, disturbed)
        elif isinstance(a, Mapping) and isinstance(b, Mapping):
            self._mappings(a, b, where, disturbed)
        elif isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
            self._lists(a, b, where, disturbed)
        elif isinstance(a, Text) and isinstance(b, Text):
            self._texts(a.content, b.content, where)
        elif isinstance(a, str) and isinstance(b, str):
            if normal(a) != normal(b):
                self._texts(a, b, where)
        elif _is_number(a) and _is_number(b):
            self._numbers(a, b, where)
        elif a != b and not (a != a and b != b):
            self._note(where, f"is {_shown(b)} where the original has {_shown(a)}")

    def _numbers(self, a: Any, b: Any, where: str) -> None:
        whole = isinstance(a, int) and isinstance(b, int)
        match = compare_values(a, b, 0.0 if whole or self.exact else self.tolerance)
        if match is Match.DIFFERENT:
            self._note(where, f"is {_shown(b)} where the original has {_shown(a)}", (float(a), float(b)))
        self.match = max(self.match, match if match is not Match.DIFFERENT else Match.SAME)

    def _arrays(self, a: Any, b: Any, where: str, disturbed: Any) -> None:
        if not (isinstance(a, Array) and isinstance(b, Array)):
            self._note(where, f"is {_shown(b)} where the original has {_shown(a)}")
            return
        apart = disturbed if isinstance(disturbed, Array) else None
        found = compare_arrays(a, b, max(self.tolerance, self.drift), self.exact, apart)
        if found.match is Match.DIFFERENT:
            pair = (
                (found.a, found.b)
                if found.a is not None and found.b is not None and a.one() is not None
                else None
            )
            self._note(where, found.sentence, pair)
        else:
            self.match = max(self.match, found.match)

    def _mappings(self, a: Mapping[Any, Any], b: Mapping[Any, Any], where: str, disturbed: Any) -> None:
        if (id(a), id(b)) in self._seen:
            return
        self._seen.add((id(a), id(b)))
        if a.keys() != b.keys():
            prefixed = {f"{PREFIX}{key}" for key in a}
            if a and prefixed == {str(key) for key in b}:
                self._note(
                    where,
                    f'has keys that start with "{PREFIX}", as a wrapped model has; the original\'s do not',
                )
                return
            for key in a:
                if key not in b:
                    self._note(where, f"has no {key!r}, which the original has")
            for key in b:
                if key not in a:
                    self._note(where, f"has {key!r}, which the original does not have")
        counts = self.own_units and a.keys() >= _SCHEDULE
        for key in a:
            if key in b and not (counts and isinstance(a[key], int) and isinstance(b[key], int)):
                there = disturbed.get(key) if isinstance(disturbed, Mapping) else None
                self.hold(a[key], b[key], f"{where}.{key}" if where else str(key), there)

    def _lists(self, a: Sequence[Any], b: Sequence[Any], where: str, disturbed: Any) -> None:
        if (id(a), id(b)) in self._seen:
            return
        self._seen.add((id(a), id(b)))
        if len(a) != len(b):
            self._note(where, f"has {len(b)} entries where the original has {len(a)}")
        same = isinstance(disturbed, (list, tuple)) and len(disturbed) == len(a)
        for number, (x, y) in enumerate(zip(a, b, strict=False)):
            self.hold(x, y, f"{where}[{number}]", disturbed[number] if same else None)

    def _texts(self, a: str, b: str, where: str) -> None:
        if a == b:
            return
        compared = compare_parsed(parse(normal(a)), parse(normal(b)), 0.0 if self.exact else self.tolerance)
        sentence = f"has {_quoted(b)} where the original has {_quoted(a)}"
        if not compared.words or (self.exact and compared.match is not Match.SAME):
            self._note(where, sentence)
            return
        x, y = parse(normal(a)).numbers, parse(normal(b)).numbers
        self.numbers += sum(not number.whole for number in x)
        for position, match in enumerate(compared.matches):
            if match is Match.DIFFERENT:
                self._note(where, sentence, (x[position].value, y[position].value))
            elif match is Match.NEAR:
                self.steps.append((where, sentence))
                self.match = max(self.match, Match.ROUNDING)
            elif match is not None:
                self.match = max(self.match, match)

    def finish(self) -> None:
        """Where too many numbers stepped to the next digit shown, they are other numbers."""
        if len(self.steps) * RARE > self.numbers:
            self._note(*self.steps[0])

    def _note(self, where: str, sentence: str, pair: tuple[float, float] | None = None) -> None:
        self.count += 1
        if pair is not None and (reason := self.excuse(*pair)):
            self.excused.add(reason)
            return
        if self.match is not Match.DIFFERENT:
            self.match, self.pair = Match.DIFFERENT, pair
            self.first = f"{where}: {sentence}" if where else sentence


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _shown(value: Any) -> str:
    if isinstance(value, Array):
        return f"an array of shape {list(value.shape)}"
    if isinstance(value, Text):
        return _quoted(value.content)
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _quoted(text: str) -> str:
    text = " ".join(text.split())
    return f'"{text if len(text) <= 90 else text[:87] + "..."}"'
