"""One text compared with another: the words have to be the same, the numbers equal as far as rounding allows.

A number that is shown with few decimals hides what rounding did to it, except where it crosses from one last digit to
the next. Such a step is put down to rounding where the tolerance reaches far enough to make it likely; where it is only
possible the match is NEAR, and a comparison of many numbers decides by how often that happens.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from itertools import zip_longest

CONTROL = 10.0
"""How many times what a disturbed run of the original shows is still put down to rounding."""
CONTROL_LIMIT = 0.05
"""The most that is put down to rounding: where a disturbed original goes beyond it, nothing can be compared."""
LIKELY = 0.01
"""Share of the last digit shown that the tolerance must reach for a step of one digit to be called rounding."""
_NUMBER = re.compile(
    r"""
    (?P<sign>(?<![\w.)\]])[-+])?          # not the hyphen of a date or of a range
    (?:
        (?P<digits>\d+(?:\.\d*)?|\.\d+) (?:[eE](?P<exponent>[-+]?\d+)(?![\w.]))?
      | (?P<special>\b(?:nan|inf|infinity)\b)
    )
    """,
    re.VERBOSE | re.IGNORECASE,
)
_SPACE = re.compile(r"\s+")
_REPLACED, _LEFT_OUT = "\0", "\1"
"""Stand in the place of each character of something that is the same whatever it is, or that may be missing."""
_FILLERS = re.compile("\0+|\1+")
_VOLATILE = re.compile(
    # Addresses of objects, and folders made for one run.
    r"\b0x[0-9a-fA-F]{6,}|[\w./-]*/tmp/(?:tmp|accelify-)[\w-]+(?:/tree)?"
)
# The function that made a tensor: a loss that is divided has another one.
_GRADIENT = re.compile(r",?\s*grad_fn=<\w+>|,?\s*requires_grad=True")


class Match(IntEnum):
    """How close two numbers or texts are; the larger of two applies to both together."""

    SAME = 0
    ROUNDING = 1
    NEAR = 2
    DIFFERENT = 3


@dataclass(frozen=True)
class Number:
    """A number as it is written.

    `unit` is what its last digit counts; `whole` says that it is an integer, which rounding does not touch. `start` and
    `end` are its place in the text.
    """

    text: str
    value: float
    unit: float
    whole: bool
    start: int = 0
    end: int = 0


@dataclass(frozen=True)
class Parsed:
    """A text cut up: `words[k]` is before `numbers[k]`, and the last one at the end."""

    text: str
    words: tuple[str, ...]
    numbers: tuple[Number, ...]

    @property
    def skeleton(self) -> str:
        """The text with a mark in the place of each number."""
        return "#".join(self.words)


@dataclass(frozen=True)
class Compared:
    """What holding two texts against each other came to.

    `words` says whether they have the same words in the same places. Where they have, `matches` has one entry for each
    pair of numbers, None for one that is not compared.
    """

    match: Match
    words: bool
    matches: tuple[Match | None, ...] = ()

    @property
    def differing(self) -> list[int]:
        """Positions of the numbers that differ or may."""
        return [k for k, match in enumerate(self.matches) if match is not None and match >= Match.NEAR]


def normal(text: str, gradients: bool = False) -> str:
    """`text` with fillers for what no two processes have in common; what is left stays in its place.

    Args:
        gradients: also leave out which operation made a tensor.
    """
    text = _VOLATILE.sub(lambda found: _REPLACED * len(found.group()), text)
    if gradients and "grad" in text:
        text = _GRADIENT.sub(lambda found: _LEFT_OUT * len(found.group()), text)
    return text


def covered(text: str, start: int, end: int) -> str:
    """`text` with that stretch of it replaced by fillers."""
    return text[:start] + _REPLACED * (end - start) + text[end:]


def parse(text: str) -> Parsed:
    """Cut `text` into words and numbers; white space counts as one blank, and none at an end."""
    words, numbers, position = [], [], 0
    for found in _NUMBER.finditer(text):
        words.append(_word(text[position : found.start()]))
        numbers.append(_number(found, text))
        position = found.end()
    words.append(_word(text[position:]))
    return Parsed(text, tuple(words), tuple(numbers))


def _word(text: str) -> str:
    if _REPLACED in text or _LEFT_OUT in text:
        text = _FILLERS.sub(lambda found: _REPLACED if found.group()[0] == _REPLACED else "", text)
    return _SPACE.sub(" ", text).strip()


def _number(found: re.Match[str], text: str) -> Number:
    written = found.group()
    value = float(written)
    if found["special"]:
        return Number(written, value, 0.0, False, found.start(), found.end())
    _, point, decimals = found["digits"].partition(".")
    exponent = int(found["exponent"] or 0)
    whole = not point and found["exponent"] is None
    try:
        unit = 10.0 ** (exponent - len(decimals))
    except OverflowError:
        unit = math.inf
    # A percentage without decimals is a rounded figure, no count.
    if whole and text[found.end() : found.end() + 1] == "%":
        whole = False
    return Number(written, value, unit, whole, found.start(), found.end())


def compare_numbers(a: Number, b: Number, tolerance: float, size: float = 0.0) -> Match:
    """Compare one number with another.

    Args:
        tolerance: relative difference that rounding explains.
        size: the usual size of numbers at this place. A value much closer to zero is what is left of
            larger ones, and carries their rounding.
    """
    if a.text == b.text or a.value == b.value or (math.isnan(a.value) and math.isnan(b.value)):
        return Match.SAME
    if a.whole and b.whole:
        return Match.DIFFERENT
    if not (math.isfinite(a.value) and math.isfinite(b.value)):
        return Match.DIFFERENT
    allowed = tolerance * max(abs(a.value), abs(b.value), 0.1 * size)
    apart = abs(a.value - b.value)
    if apart <= allowed:
        return Match.ROUNDING
    # Numbers of fixed form have the same last digit; shortest forms end where the number does.
    unit = min(number.unit for number in (a, b) if not number.whole)
    if apart > allowed + unit * (1 + 1e-6):
        return Match.DIFFERENT
    return Match.ROUNDING if allowed >= LIKELY * unit else Match.NEAR


def compare_values(a: float, b: float, tolerance: float, size: float = 0.0) -> Match:
    """Compare a value with another, both in full."""
    if a == b or (math.isnan(a) and math.isnan(b)):
        return Match.SAME
    if not (math.isfinite(a) and math.isfinite(b)):
        return Match.DIFFERENT
    close = abs(a - b) <= tolerance * max(abs(a), abs(b), 0.1 * size)
    return Match.ROUNDING if close else Match.DIFFERENT


def compare_parsed(
    a: Parsed,
    b: Parsed,
    tolerance: float,
    sizes: Iterable[float] = (),
    skipped: Iterable[int] = (),
) -> Compared:
    """Compare one text with another.

    Args:
        tolerance: relative difference that rounding explains.
        sizes: the usual sizes of the numbers, in their order.
        skipped: positions of numbers that are not compared.
    """
    if a.words != b.words or len(a.numbers) != len(b.numbers):
        return Compared(Match.DIFFERENT, False)
    left_out = set(skipped)
    matches: list[Match | None] = []
    pairs = zip_longest(a.numbers, b.numbers, list(sizes)[: len(a.numbers)])
    for position, (mine, other, size) in enumerate(pairs):
        if position in left_out:
            matches.append(None)
        else:
            matches.append(compare_numbers(mine, other, tolerance, size or 0.0))
    worst = max((match for match in matches if match is not None), default=Match.SAME)
    return Compared(worst, True, tuple(matches))


def compare_texts(a: str, b: str, tolerance: float) -> Match:
    """Compare one text with another, without what differs from process to process."""
    if a == b:
        return Match.SAME
    return compare_parsed(parse(normal(a, True)), parse(normal(b, True)), tolerance).match
