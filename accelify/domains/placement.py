"""Placement: what a value of one rank has to do with the value that the original script has there.

The algebra follows DTensor's placements (replicate, shard, partial) with one addition, units of measure: a value that
is the same on all ranks and 1/N of the original's (the length of a prepared loader) carries an exponent of N, and
products and quotients add and subtract exponents. So `total / len(loader)` comes out right without a pattern.

    SAME(d)    equal on all ranks; the original's is N**d times it. d is None where no power of N leads to it
    SHARD      rows: the original's are those of all ranks, one after the other
    ROUND      of this rank's iteration of a loop whose rounds are shared out; any function of it is one of the
               original's rounds too. `rows` says that it has the batch's rows; `degree` is the exponent of samples
               (a sum or a count 1, a mean 0), None where it is neither
    WIDE(s)    of the iterations of all ranks together, equal on all ranks; `degree` is the exponent of samples
               (a sum or a count 1, a mean 0)
    LINEAR(d)  the original's is N**d times the average over the ranks; `rows` says that it counts a share's rows,
               which all ranks have about equally many of
    SAMPLE     of one of the rows of all ranks' iterations, equal on all ranks, in a loop over those rows
    PARTS(d)   the values of all ranks in a row; their mean is SAME(d)
    EXTREME    the largest or smallest over the ranks is the original's
    MAIN       only the main process has it
    CLOCK      a time, which differs between any two runs
    OWN        no relation to the original's is known
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """See the module's docstring."""

    SAME = "same"
    SHARD = "shard"
    ROUND = "round"
    WIDE = "wide"
    SAMPLE = "sample"
    LINEAR = "linear"
    PARTS = "parts"
    EXTREME = "extreme"
    MAIN = "main"
    CLOCK = "clock"
    OWN = "own"


@dataclass(frozen=True, slots=True)
class Placement:
    """One answer; `needs` says for OWN what would have made it right further up."""

    kind: Kind
    degree: int | None = 0
    rows: bool = False
    needs: str = ""

    @property
    def is_same(self) -> bool:
        """Whether it is the original's on every rank."""
        return self.kind is Kind.SAME and self.degree == 0

    @property
    def is_uniform(self) -> bool:
        """Whether all ranks have the same value, the original's or not."""
        return self.kind in (Kind.SAME, Kind.WIDE, Kind.SAMPLE, Kind.PARTS)


SAME = Placement(Kind.SAME)
# The same, and put together over the ranks: what is added to it on each rank counts N times where it is summed again.
TOTAL = Placement(Kind.SAME, needs="set to zero first")
ROUND = Placement(Kind.ROUND)
ROUND_ROWS = Placement(Kind.ROUND, rows=True)
SHARD = Placement(Kind.SHARD, rows=True)
WIDE_ROWS = Placement(Kind.WIDE, rows=True)
SAMPLE = Placement(Kind.SAMPLE)
MAIN = Placement(Kind.MAIN)
CLOCK = Placement(Kind.CLOCK)
OWN = Placement(Kind.OWN)
UNRELATED = Placement(Kind.SAME, None)


def same(degree: int | None) -> Placement:
    """Equal on all ranks, the original's being N**degree times it."""
    return SAME if degree == 0 else Placement(Kind.SAME, degree)


def linear(degree: int | None) -> Placement:
    """The original's is N**degree times the average."""
    return own("put together first") if degree is None else Placement(Kind.LINEAR, degree)


def wide(degree: int | None, rows: bool = False) -> Placement:
    """Of all ranks' iterations together, with an exponent of samples."""
    return Placement(Kind.WIDE, degree, rows)


def own(needs: str = "") -> Placement:
    """No known relation; `needs` is what would help further up."""
    return Placement(Kind.OWN, needs=needs)


# What takes part in an operation without a say, then what decides alone, the strongest first.
_DECIDING = (Kind.OWN, Kind.MAIN, Kind.EXTREME, Kind.PARTS)


def function(places: Iterable[Placement], *, rowwise: bool = False, linearly: bool = False) -> Placement:
    """What a function of several values is.

    Args:
        places: those of its arguments.
        rowwise: a row of the result depends on the same row of the arguments.
        linearly: it is linear in its arguments, and row by row.
    """
    found = list(dict.fromkeys(place for place in places if not place.is_same))
    if not found:
        return SAME
    kinds = {place.kind for place in found}
    for kind in _DECIDING:
        if kind in kinds:
            first = next(place for place in found if place.kind is kind)
            if kind in (Kind.OWN, Kind.MAIN) or (linearly and len(found) == 1):
                return first
            return own("put together first")
    if Kind.CLOCK in kinds:
        return CLOCK
    if kinds == {Kind.SAME}:
        degrees = {place.degree for place in found}
        return found[0] if linearly and len(degrees) == 1 else UNRELATED
    rows = any(place.rows for place in found) and (rowwise or linearly)
    rest = kinds - {Kind.SAME}
    if rest == {Kind.ROUND}:
        degrees = {place.degree for place in found if place.kind is Kind.ROUND}
        # Of a function over all rows nothing says whether it is a mean.
        plain = linearly or (degrees == {0} and (rowwise or not any(place.rows for place in found)))
        return Placement(Kind.ROUND, degrees.pop() if plain and len(degrees) == 1 else None, rows)
    if rest == {Kind.SAMPLE} or (rest == {Kind.SAMPLE, Kind.WIDE} and not any(place.rows for place in found)):
        return SAMPLE
    if rest == {Kind.WIDE}:
        if rows:
            return WIDE_ROWS
        degrees = {place.degree for place in found if place.kind is Kind.WIDE}
        return wide(degrees.pop() if linearly and len(degrees) == 1 else None)
    if rest == {Kind.SHARD} and Kind.SAME not in kinds:
        return SHARD if rowwise or linearly else own("gathered first")
    if rest == {Kind.LINEAR} and Kind.SAME not in kinds:
        degrees = {place.degree for place in found}
        return found[0] if linearly and len(degrees) == 1 else own("put together first")
    if rest == {Kind.ROUND, Kind.LINEAR}:
        # A running total with this round's addition is a running total.
        return next(place for place in found if place.kind is Kind.LINEAR) if linearly else own("put together first")
    return own("put together first")


def added(left: Placement, right: Placement) -> Placement:
    """The sum or difference of two values."""
    if left.kind is right.kind is Kind.SAME and left.degree != right.degree and 0 in (left.degree, right.degree):
        # `step + 1` of a count of this rank's rounds: a constant beside it does not change what it counts.
        return left if right.degree == 0 else right
    if Kind.SAME in (left.kind, right.kind) and Kind.LINEAR in (left.kind, right.kind):
        part, other = (left, right) if left.kind is Kind.LINEAR else (right, left)
        if other.needs and part.degree != other.degree:
            return own(other.needs)
        return part if other.degree in (0, part.degree) else own("put together first")
    return function((left, right), linearly=True)


def multiplied(left: Placement, right: Placement, sign: int = 1) -> Placement:
    """The product of two values, or with `sign` -1 the quotient: exponents add, or subtract."""
    if left.kind in (Kind.SAME, Kind.LINEAR) and right.kind is Kind.SAME:
        make = same if left.kind is Kind.SAME else linear
        return make(_sum(left.degree, right.degree, sign))
    if right.kind is Kind.LINEAR and right.rows and left.kind in (Kind.SAME, Kind.LINEAR):
        # A mean of a share times its number of rows is its sum, a sum by the number a mean.
        return linear(_sum(left.degree, right.degree, sign))
    if left.kind is right.kind is Kind.LINEAR and left.rows and sign > 0:
        return linear(_sum(left.degree, right.degree, 1))
    if right.kind is Kind.LINEAR and left.kind is Kind.SAME and sign > 0:
        return linear(_sum(left.degree, right.degree, 1))
    if left.kind is right.kind is Kind.WIDE and not (left.rows or right.rows):
        return wide(_sum(left.degree, right.degree, sign))
    if Kind.WIDE in (left.kind, right.kind) and {left.kind, right.kind} == {Kind.WIDE, Kind.SAME}:
        part, other = (left, right) if left.kind is Kind.WIDE else (right, left)
        if part.rows:
            return WIDE_ROWS
        if part.degree is None or other.degree is None or (sign < 0 and left is not part):
            return wide(None)
        return wide(part.degree - sign * other.degree)
    if Kind.ROUND in (left.kind, right.kind) and {left.kind, right.kind} <= {Kind.ROUND, Kind.SAME}:
        # What is N times the original's, or 1/N of it, changes what a round's figure is part of as samples do.
        return Placement(Kind.ROUND, _sum(left.degree, right.degree, sign), left.rows or right.rows)
    if right.is_same and left.kind is Kind.SHARD:
        return left
    if left.is_same and right.kind is Kind.SHARD and sign > 0:
        return right
    return function((left, right), rowwise=True)


def _sum(left: int | None, right: int | None, sign: int) -> int | None:
    return None if left is None or right is None else left + sign * right


def reduced(place: Placement, operation: str, over_rows: bool = True) -> Placement:
    """A reduction within one process: `sum`, `mean`, `count`, `max`, `min`, `any`, `all`, or another one.

    Args:
        place: of what is reduced.
        operation: its name.
        over_rows: whether rows go into it, or only what lies within each.
    """
    if not over_rows:
        return function((place,), rowwise=True, linearly=operation in ("sum", "mean"))
    samples = {"sum": 1, "count": 1, "mean": 0}.get(operation)
    if place.kind is Kind.ROUND:
        if not place.rows:
            return place if operation in ("sum", "mean") else Placement(Kind.ROUND, None)
        return Placement(Kind.ROUND, None if samples is None else _sum(place.degree, samples, 1))
    if place.kind is Kind.WIDE:
        if place.rows:
            return wide(samples if operation not in ("max", "min", "any", "all") else 0)
        return place if samples is not None else wide(None)
    if place.kind is Kind.SHARD:
        if samples is not None:
            return Placement(Kind.LINEAR, samples, operation == "count")
        return Placement(Kind.EXTREME) if operation in ("max", "min", "any", "all") else own("gathered first")
    if place.kind is Kind.PARTS and place.degree is not None:
        return same(place.degree - (operation != "mean")) if operation in ("mean", "sum") else own()
    return function((place,), linearly=operation in ("sum", "mean"))


def accumulated(head: Placement, delta: Placement, shared: bool, samples: Placement = SAME) -> Placement:
    """A value that a loop adds something to in each round, after the loop.

    Args:
        head: before the loop.
        delta: what one round adds.
        shared: whether the rounds of the loop are shared out among the ranks.
        samples: what the rows are that the loop goes over one by one, SAME where it goes over something else.
    """
    total = delta
    if samples.kind is Kind.WIDE and delta.kind in (Kind.SAME, Kind.SAMPLE):
        total = wide(1) if delta.kind is Kind.SAMPLE or delta.degree == 0 else wide(None)
    elif samples.kind is Kind.SHARD and delta.kind in (Kind.SAME, Kind.SHARD):
        total = linear(1 if delta.kind is Kind.SHARD else None if delta.degree is None else delta.degree + 1)
    elif samples.kind is Kind.ROUND and delta.kind is Kind.SAME:
        total = ROUND
    elif shared:
        if delta.kind in (Kind.SAME, Kind.LINEAR) and delta.degree is not None:
            total = Placement(delta.kind, delta.degree + 1)
        elif delta.kind is Kind.ROUND:
            total = linear(1)
        elif delta.kind is Kind.WIDE:
            total = same(None if delta.degree is None else 1 - delta.degree)
        elif delta.kind in (Kind.SHARD, Kind.PARTS, Kind.EXTREME):
            total = own("put together in each round")
    if head.is_same and not head.needs:
        return total
    return total if head == total else added(head, total)


def joined(left: Placement, right: Placement) -> Placement:
    """What a value is after two ways to it, where all ranks went the same one."""
    if left == right:
        return left
    if left.is_same and right.is_same:
        return left if left.needs else right
    if left.is_same or right.is_same:
        return right if left.is_same else left
    if left.kind is right.kind:
        if left.kind is Kind.SAME:
            return UNRELATED
        if left.kind is Kind.ROUND:
            return Placement(Kind.ROUND, left.degree if left.degree == right.degree else None)
        if left.kind is Kind.WIDE:
            return wide(None)
    if Kind.ROUND in (left.kind, right.kind) and Kind.SAME in (left.kind, right.kind):
        degree = left.degree if left.kind is Kind.ROUND else right.degree
        return Placement(Kind.ROUND, degree)
    first = left if left.kind in (Kind.OWN, Kind.MAIN) else right
    return first if first.kind in (Kind.OWN, Kind.MAIN) else own("put together first")


def all_reduced(place: Placement, operation: str) -> Placement:
    """A value reduced over the ranks with `sum`, `mean`, `max` or `min`."""
    if place.kind is Kind.ROUND:
        return wide({"sum": 1, "mean": 0}.get(operation), place.rows and operation in ("sum", "mean"))
    if place.kind in (Kind.SAME, Kind.LINEAR):
        if operation == "mean":
            return same(place.degree)
        if operation == "sum" and place.degree == 1:
            return TOTAL
        if operation == "sum":
            return same(None if place.degree is None else place.degree - 1)
        return place if place.kind is Kind.SAME else UNRELATED
    if place.kind is Kind.EXTREME and operation in ("max", "min"):
        return SAME
    return place if place.kind in (Kind.WIDE, Kind.CLOCK) else UNRELATED


def gathered(place: Placement) -> Placement:
    """The values, or the rows, of all ranks one after the other."""
    if place.kind is Kind.ROUND:
        return WIDE_ROWS
    if place.kind is Kind.SHARD:
        return SAME
    if place.kind in (Kind.SAME, Kind.LINEAR):
        return Placement(Kind.PARTS, place.degree)
    if place.kind in (Kind.WIDE, Kind.PARTS):
        return own("gathered once")
    return UNRELATED if place.kind in (Kind.OWN, Kind.MAIN, Kind.EXTREME) else place


def broadcast(place: Placement) -> Placement:
    """The main process's value on all ranks."""
    if place.kind in (Kind.OWN, Kind.MAIN, Kind.CLOCK):
        return SAME
    return place if place.is_uniform else UNRELATED
