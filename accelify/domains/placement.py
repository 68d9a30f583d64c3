"""Placement: what a value of one rank has to do with the value that the original script has there.

The algebra follows DTensor's placements (replicate, shard, partial) with one addition, units of measure: a value that
is the same on all ranks and 1/N of the original's (the length of a prepared loader) carries an exponent of N, and
products and quotients add and subtract exponents. So `total / len(loader)` comes out right without a pattern.

    SAME(d)    equal on all ranks; the original's is N**d times it. d is None where no power of N leads to it
    SHARD      rows: the original's are those of all ranks, one after the other
    ROUND(d)   of this rank's iteration of a loop whose rounds are shared out, which is one of the original's; the
               original's is N**d times it. d is None where no power of N leads to it. `rows` says that it has the
               batch's rows, `samples` is its exponent of them (a sum or a count 1, a mean 0), None where that is not
               known, `mixed` that it is neither a mean nor a sum of something of each row
    WIDE(d)    of the iterations of all ranks together, equal on all ranks: N**d times the mean over those iterations
               (a sum or a count 1, a mean 0). With `rows` the rows of all of them, one after the other (d is 0), or
               with `mixed` some of them, chosen by what each is
    SAMPLE     of one of the rows of all ranks' iterations, equal on all ranks, in a loop over those rows. Where d is
               None it goes by the row's number among them, which is another one in the original
    LINEAR(d)  the original's is N**d times the average over the ranks; `rows` says that it counts a share's rows,
               which all ranks have about equally many of
    PARTS(d)   the values of all ranks in a row; their mean is SAME(d)
    EXTREME    the largest or smallest over the ranks is the original's; `needs` says which, where that is known
    MAIN       only the main process has it, and it is the original's
    CLOCK      a time, which differs between any two runs
    OWN        no relation to the original's is known

`even` says of ROUND and WIDE that it is a count of samples, the same in every round (batches are of one size).

`phase` says of a value in a loop whose rounds are shared out that it goes with how far the loop is, such as a running
total or a counter: it has its relation to what the original has after as many rounds, "before" or "after" those that
the ranks go through now. After the loop a value of the phase "after" has it for good.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Concatenate, ParamSpec

from accelify.domains.replacing import replace


class Kind(StrEnum):  # see the module's docstring
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


# Never changed once it is made, and not frozen: that would make it three times as dear.
@dataclass(unsafe_hash=True, slots=True)
class Placement:
    """One answer.

    `needs` says for OWN what would have made it right further up; `turned` along which axis rows lie (0: the first),
    `sure` that this is known and not only taken for so, 1 where they are those of several arrays one after the other;
    `padded` that they are as long as the batch's longest; `axes` how many axes an array has, 0 where that is not known.
    `form` is AHEAD or BESIDE of rows with an axis of one put ahead of theirs or next to it, PEAK of the largest or
    smallest of a batch, EACH of the numbers of all ranks, ONE of those, FIGURE of one of two figures of a batch.
    """

    kind: Kind
    degree: int | None = 0
    rows: bool = False
    needs: str = ""
    even: bool = False
    phase: str = ""
    samples: int | None = 0
    turned: int = 0
    mixed: bool = False
    sure: int = 0
    padded: bool = False
    form: str = ""
    axes: int = 0

    @property
    def is_same(self) -> bool:
        """Whether it is the original's on every rank, wherever it is asked for."""
        return self.kind is Kind.SAME and self.degree == 0 and not self.phase

    @property
    def is_uniform(self) -> bool:
        """Whether all ranks have the same value, the original's or not."""
        return self.kind in _UNIFORM


SAME = Placement(Kind.SAME)
ROUND = Placement(Kind.ROUND)
ROUND_ROWS = Placement(Kind.ROUND, rows=True)
SHARD = Placement(Kind.SHARD, rows=True)
SAMPLE, NUMBERED = Placement(Kind.SAMPLE), Placement(Kind.SAMPLE, None)
WIDE_ROWS = Placement(Kind.WIDE, rows=True)
CHOSEN_ROWS = Placement(Kind.WIDE, rows=True, mixed=True)
MAIN, CLOCK, OWN = Placement(Kind.MAIN), Placement(Kind.CLOCK), Placement(Kind.OWN)
# The same, and put together over the ranks: what is added to it on each rank counts N times where it is summed again.
TOTAL = Placement(Kind.SAME, needs="set to zero first")
UNRELATED = Placement(Kind.SAME, None)
_UNIFORM = frozenset({Kind.SAME, Kind.WIDE, Kind.SAMPLE, Kind.PARTS})
TOGETHER = "put together first"
# What goes with a count of the rounds of each process is another one at the same place of the original's training.
COUNTED = "by the rounds of all processes"
# What a rank has from its last round, the original has from the round before.
CARRIED = "from the round before"
BEFORE, AFTER, AHEAD, BESIDE = "before", "after", "ahead", "beside"
PEAK, EACH, ONE, FIGURE = "peak", "each", "one", "figure"
P = ParamSpec("P")


def same(degree: int | None) -> Placement:
    """Equal on all ranks, the original's being N**degree times it."""
    return SAME if degree == 0 else Placement(Kind.SAME, degree)


def linear(degree: int | None) -> Placement:
    """The original's is N**degree times the average."""
    return own(TOGETHER) if degree is None else Placement(Kind.LINEAR, degree)


def of_round(degree: int | None, rows: bool = False) -> Placement:
    """Of this rank's iteration, the original's being N**degree times it."""
    return Placement(Kind.ROUND, degree, rows)


def wide(degree: int | None, rows: bool = False) -> Placement:
    """Of all ranks' iterations together, with an exponent of samples."""
    return Placement(Kind.WIDE, degree, rows)


def own(needs: str = "") -> Placement:
    """No known relation; `needs` is what would help further up."""
    return Placement(Kind.OWN, needs=needs)


def moved(place: Placement, phase: str | None) -> Placement:
    """What an operation gives whose operands go with how far a loop is; None where they do so at different times."""
    if place.kind in (Kind.SAME, Kind.LINEAR, Kind.PARTS, Kind.OWN):
        return replace(place if phase is not None else _without_degree(place), phase=phase or AFTER)
    if place.kind in (Kind.SHARD, Kind.EXTREME):
        return replace(own(TOGETHER), phase=AFTER)
    if place.kind not in (Kind.ROUND, Kind.WIDE):
        return place
    counted = place.kind is Kind.ROUND and place.degree not in (0, None)
    return replace(place, degree=None, even=False, needs=COUNTED if counted else place.needs)


def settled(place: Placement) -> Placement:
    """The same value after the loop that it went with; that of before the last round has no relation any more."""
    if not place.phase:
        return place
    return replace(place if place.phase == AFTER else _without_degree(place), phase="")


def unturned(place: Placement) -> Placement:
    """The same with its rows along the first axis."""
    return replace(place, turned=0) if place.turned else place


def nearer(place: Placement) -> Placement:
    """The same with an axis gone that lay before that of its rows."""
    return replace(place, turned=place.turned - 1) if place.turned else place


def unsure(place: Placement) -> Placement:
    """The same, with its rows taken to lie where they did."""
    return replace(place, sure=0, form="") if place.sure or place.form else place


def turned(place: Placement, axis: int = 1) -> Placement:
    """The same with its rows along another axis."""
    return replace(place, turned=axis) if place.rows else place


def _in_step(
    operation: Callable[Concatenate[Placement, Placement, P], Placement],
) -> Callable[Concatenate[Placement, Placement, P], Placement]:
    @functools.wraps(operation)
    def call(left: Placement, right: Placement, /, *args: P.args, **keywords: P.kwargs) -> Placement:
        if left.turned or right.turned:
            return turned(
                call(unturned(left), unturned(right), *args, **keywords), max(left.turned, right.turned)
            )
        if not (left.phase or right.phase):
            return operation(left, right, *args, **keywords)
        found = operation(replace(left, phase=""), replace(right, phase=""), *args, **keywords)
        return moved(found, _phase((left, right)))

    return call


def alone(
    operation: Callable[Concatenate[Placement, P], Placement],
) -> Callable[Concatenate[Placement, P], Placement]:
    """An operation on one value, which goes with how far a loop is where the value does."""

    @functools.wraps(operation)
    def call(place: Placement, /, *args: P.args, **keywords: P.kwargs) -> Placement:
        found = operation(replace(place, phase="") if place.phase else place, *args, **keywords)
        return moved(found, place.phase) if place.phase else found

    return call


def _phase(places: Iterable[Placement]) -> str | None:
    phases = {place.phase for place in places if place.phase}
    return phases.pop() if len(phases) == 1 else None


def function(places: Iterable[Placement], *, rowwise: bool = False, linearly: bool = False) -> Placement:
    """What a function of several values is.

    Args:
        places: those of its arguments.
        rowwise: a row of the result depends on the same row of the arguments.
        linearly: it is row by row, and linear in those of its arguments that are not SAME(0), without a change of sign.
    """
    given = tuple([place for place in places if not place.is_same])
    return _function(given, rowwise, linearly) if given else SAME


@functools.lru_cache(maxsize=4096)
def _function(given: tuple[Placement, ...], rowwise: bool, linearly: bool) -> Placement:
    if axis := max(place.turned for place in given):
        return turned(function(map(unturned, given), rowwise=rowwise, linearly=linearly), axis)
    if any(place.phase for place in given):
        still = [replace(place, phase="") for place in given]
        return moved(function(still, rowwise=rowwise, linearly=linearly), _phase(given))
    found = list(dict.fromkeys(given))
    kinds = {place.kind for place in found}
    if Kind.OWN in kinds:
        return next(place for place in found if place.kind is Kind.OWN)
    if kinds & {Kind.MAIN, Kind.CLOCK}:
        return _of_one_process(kinds)
    alike = found[0] if linearly and len(found) == 1 else None
    if alike is not None and (len(given) == 1 or alike.kind not in (Kind.EXTREME, Kind.WIDE, Kind.ROUND)):
        return alike
    rest = kinds - {Kind.SAME}
    scaled = Kind.SAME in kinds
    rows = any(place.rows for place in found) and (rowwise or linearly)
    even = not scaled and all(place.even for place in found)
    if rest == {Kind.ROUND}:
        return replace(
            _of_rounds(found, rows, linearly and not scaled, even),
            samples=_samples(found, linearly, rowwise),
            mixed=any(place.mixed for place in found) or (not linearly and all(map(is_figure, found))),
            sure=min((place.sure for place in found if place.rows), default=0) if rows else 0,
            padded=rows and any(place.padded for place in found),
        )
    if rest == {Kind.SAMPLE} or (rest == {Kind.SAMPLE, Kind.WIDE} and not any(place.rows for place in found)):
        return (
            NUMBERED
            if scaled or any(one.degree is None for one in found if one.kind is Kind.SAMPLE)
            else SAMPLE
        )
    if rest == {Kind.WIDE}:
        return _of_all_rounds(found, rows, linearly and not scaled, even)
    if rest <= _UNIFORM:
        return UNRELATED
    if kinds == {Kind.LINEAR} and linearly and len({place.degree for place in found}) == 1:
        return linear(found[0].degree)
    if rest == {Kind.SHARD} and not scaled:
        shard = replace(SHARD, padded=any(place.padded for place in found))
        return shard if rowwise or linearly else own("gathered first")
    return own(TOGETHER)


def _of_one_process(kinds: set[Kind]) -> Placement:
    if kinds == {Kind.MAIN}:
        return MAIN
    return CLOCK if Kind.MAIN not in kinds else own(TOGETHER)


def _of_rounds(found: list[Placement], rows: bool, linearly: bool, even: bool) -> Placement:
    degrees = {place.degree for place in found}
    exact = degrees == {0} or (linearly and len(degrees) == 1)
    scaled = any(place.kind is Kind.SAME and place.degree != 0 for place in found)
    needs = COUNTED if scaled else _needs(found)
    return Placement(Kind.ROUND, degrees.pop() if exact else None, rows, needs, even=even)


def _of_both(left: Placement, right: Placement) -> str:
    """What two ways to a value need: of one of them alone it is not said that the round before left it."""
    return (
        left.needs if left.needs == right.needs else COUNTED if COUNTED in (left.needs, right.needs) else ""
    )


def _needs(places: Iterable[Placement]) -> str:
    return next((place.needs for place in places if place.kind is Kind.ROUND and place.needs), "")


def _samples(found: list[Placement], linearly: bool, rowwise: bool) -> int | None:
    of_rounds = [place for place in found if place.kind is Kind.ROUND]
    # A count of samples says how large something is: `x.view(x.size(0), -1)`.
    exponents = {place.samples for place in [p for p in of_rounds if not p.even] or of_rounds}
    # Of a function over all rows nothing says whether it is a mean; one of a mean that is not linear is none.
    plain = linearly or (exponents == {0} and rowwise and any(place.rows for place in found))
    return exponents.pop() if len(exponents) == 1 and plain else None


def is_figure(place: Placement) -> bool:
    """Whether it is a mean or a sum over a batch: a function of it that is not linear is neither."""
    plain = place.kind is Kind.ROUND and not place.rows and not place.even
    return plain and (place.samples is not None or place.form == FIGURE)


def _of_all_rounds(found: list[Placement], rows: bool, linearly: bool, even: bool) -> Placement:
    if rows:
        found = list(dict.fromkeys(replace(place, form="") if place.form else place for place in found))
        # Chosen rows meet those that the same choice, or one of as many in each batch, leaves.
        return found[0] if found in ([WIDE_ROWS], [CHOSEN_ROWS]) else wide(None, rows=True)
    degrees = {place.degree for place in found}
    exact = linearly and len(degrees) == 1 and not any(place.rows for place in found)
    return Placement(Kind.WIDE, degrees.pop() if exact else None, even=even)


@_in_step
def added(left: Placement, right: Placement) -> Placement:
    """The sum or difference of two values, neither of which is known to be nothing."""
    if left.kind is Kind.SAME:
        left, right = right, left
    if right.kind is not Kind.SAME:
        found = function((left, right), linearly=left.kind is not Kind.EXTREME)
        # Rows from which a mean of theirs is taken depend on each other; a mean and a sum are neither.
        figures = [is_figure(left), is_figure(right)]
        apart = left.samples != right.samples if all(figures) else left.rows != right.rows and any(figures)
        return replace(found, mixed=True) if apart and found.kind is Kind.ROUND else found
    if left.kind is Kind.LINEAR and right.needs and left.degree != right.degree:
        return own(right.needs)
    if left.is_same and right.is_same:
        return left if left.needs else right
    if left.kind in (Kind.SAME, Kind.LINEAR, Kind.ROUND, Kind.PARTS):
        if left.degree == right.degree and left.degree is not None:
            return left
        found = _without_degree(left)
        return replace(found, needs=COUNTED) if left.kind is Kind.ROUND and not right.is_same else found
    if left.kind is Kind.WIDE and right.degree is not None and left.degree is not None:
        return left if left.degree == -right.degree else _without_degree(left)
    return left if right.is_same else function((left, right), linearly=True)


def _without_degree(place: Placement) -> Placement:
    """The same value times or plus something that does not go with the powers of N."""
    if place.kind in (Kind.LINEAR, Kind.OWN):
        return own(TOGETHER)
    return UNRELATED if place.kind is Kind.PARTS else replace(place, degree=None)


@_in_step
def multiplied(left: Placement, right: Placement, sign: int = 1) -> Placement:
    """The product of two values, or with `sign` -1 the quotient: exponents add, or subtract."""
    kinds = {left.kind, right.kind}
    rows = left.rows or right.rows
    if right.kind is Kind.SAME and left.kind in (Kind.SAME, Kind.LINEAR, Kind.PARTS):
        return _scaled(left, right, sign)
    if left.kind is Kind.SAME and right.kind in (Kind.LINEAR, Kind.PARTS) and sign > 0:
        return _scaled(right, left, sign)
    if right.kind is Kind.LINEAR and right.rows and left.kind in (Kind.SAME, Kind.LINEAR):
        # A mean of a share times its number of rows is its sum, a sum by the number a mean.
        return linear(exponent_sum(left.degree, right.degree, sign))
    if left.kind is right.kind is Kind.LINEAR and left.rows and sign > 0:
        return linear(exponent_sum(left.degree, right.degree, 1))
    if Kind.ROUND in kinds and kinds <= {Kind.ROUND, Kind.SAME}:
        even = all(place.even or place.is_same for place in (left, right))
        samples, degree = (
            exponent_sum(left.samples, right.samples, sign),
            exponent_sum(left.degree, right.degree, sign),
        )
        needs = COUNTED if UNRELATED in (left, right) else _needs((left, right))
        mixed = left.mixed or right.mixed
        if Kind.SAME not in kinds and not (left.even or right.even):
            # What is drawn in a round, or of which nothing is known, may be a factor that all of its rows have.
            pairs = ((left, right), (right, left))
            mixed = mixed or any(is_figure(one) and (other.rows or is_figure(other)) for one, other in pairs)
        samples = None if mixed else samples
        sure = min(place.sure for place in (left, right) if place.rows) if rows else 0
        padded = rows and (left.padded or right.padded)
        scaled = next((one for one, other in ((left, right), (right, left)) if other.is_same), None)
        form = scaled.form if scaled is not None and (scaled is left or sign > 0) else ""
        return Placement(Kind.ROUND, degree, rows, needs, even, "", samples, 0, mixed, sure, padded, form)
    if Kind.WIDE in kinds and kinds <= {Kind.WIDE, Kind.SAME} and not rows:
        return _of_means(left, right, sign)
    if Kind.EXTREME in kinds and SAME in (left, right) and (sign > 0 or right.is_same):
        # The sign of the factor is not known: it may turn the largest into the smallest.
        return Placement(Kind.EXTREME)
    return function((left, right), rowwise=True)


def _scaled(place: Placement, factor: Placement, sign: int) -> Placement:
    degree = exponent_sum(place.degree, factor.degree, sign)
    return _without_degree(place) if degree is None else replace(place, degree=degree)


def _of_means(left: Placement, right: Placement, sign: int) -> Placement:
    """A product or quotient of means over rounds: of a product only where one factor is the same in all rounds."""
    even = all(place.even or place.is_same for place in (left, right))
    fixed = [place.even or place.kind is Kind.SAME for place in (left, right)]
    if not (fixed[1] or (fixed[0] and sign > 0)):
        return wide(None)
    # N**e times the original's is the mean over rounds times N**-e.
    degrees = [
        None if place.degree is None else -place.degree if place.kind is Kind.SAME else place.degree
        for place in (left, right)
    ]
    return Placement(Kind.WIDE, exponent_sum(degrees[0], degrees[1], sign), even=even)


def exponent_sum(left: int | None, right: int | None, sign: int) -> int | None:
    """The exponent of a product (or with `sign` -1 of a quotient), None where one of both is not known."""
    return None if left is None or right is None else left + sign * right


@alone
def reduced(place: Placement, operation: str, over_rows: bool = True) -> Placement:
    """A reduction within one process: `sum`, `mean`, `count`, `max`, `min`, `any`, `all`, or another one, or
    `weighted`, a mean of which each rank has one by the weights of its rows.

    Args:
        place: of what is reduced.
        operation: its name.
        over_rows: whether rows go into it, or only what lies within each.
    """
    place = unturned(place)
    linearly = operation in ("sum", "mean")
    if not over_rows:
        within = replace(place, padded=False, form="") if place.padded or place.form else place
        return function((within,), rowwise=True, linearly=linearly)
    samples = {"sum": 1, "count": 1, "mean": 0}.get(operation)
    if operation == "count" and place.rows and place.kind in (Kind.ROUND, Kind.WIDE):
        of_all = int(place.kind is Kind.WIDE)
        return Placement(place.kind, of_all, even=not place.mixed, samples=1 - of_all)
    if place.kind is Kind.ROUND:
        exponent = None if not linearly else exponent_sum(place.samples, samples if place.rows else 0, 1)
        degree = place.degree if linearly or place.degree == 0 else None
        peak = operation in ("max", "min") and place.rows
        apart = operation == "weighted" or (place.sure if peak else is_figure(place) and not linearly)
        mixed, form = bool(place.mixed or apart), PEAK if peak else ""
        return Placement(Kind.ROUND, degree, needs=place.needs, samples=exponent, mixed=mixed, form=form)
    if place.kind is Kind.WIDE:
        if operation == "weighted":
            return reduced(place, "mean")
        if place.rows:
            return wide(samples if place.degree == 0 and (samples or not place.mixed) else None)
        return wide(place.degree if linearly else None)
    if place.kind is Kind.SHARD:
        if samples is not None:
            return Placement(Kind.LINEAR, samples, operation == "count")
        extreme = {"max": "max", "any": "max", "min": "min", "all": "min"}.get(operation)
        return Placement(Kind.EXTREME, needs=extreme) if extreme else own("gathered first")
    if place.kind is Kind.EXTREME:
        return place if operation == place.needs else own(TOGETHER)
    if place.kind is Kind.PARTS and linearly:
        return same(exponent_sum(place.degree, int(operation == "sum"), -1))
    return function((place,), linearly=linearly)


@_in_step
def joined(left: Placement, right: Placement) -> Placement:
    """What a value is after two ways to it, where all ranks went the same one."""
    if left == right:
        return left
    if (
        left.kind is right.kind
        and left.kind in (Kind.SAME, Kind.ROUND, Kind.WIDE)
        and (left.kind is Kind.ROUND or not left.needs + right.needs)
    ):
        exact = left.degree == right.degree and (left.rows == right.rows or left.kind is Kind.ROUND)
        samples = left.samples if left.samples == right.samples else None
        return Placement(
            left.kind,
            left.degree if exact else None,
            left.rows and right.rows,
            _of_both(left, right),
            samples=samples,
            mixed=left.mixed or right.mixed,
            sure=min(left.sure, right.sure),
            padded=left.padded and right.padded,
        )
    if left.is_same and right.is_same:
        return left if left.needs else right
    if left.kind is right.kind is Kind.LINEAR and left.degree == right.degree:
        return linear(left.degree)
    for kind in (Kind.OWN, Kind.CLOCK):
        if kind in (left.kind, right.kind):
            return left if left.kind is kind else right
    for one, other in ((left, right), (right, left)):
        if other.kind is Kind.SAME and one.kind in (Kind.ROUND, Kind.WIDE):
            degree = 0 if one.degree == other.degree == 0 else None
            even, needs = one.even and one.kind is Kind.ROUND, _needs((one,))
            return Placement(one.kind, degree, needs=needs, even=even, samples=one.samples, mixed=one.mixed)
        if other.is_same and (one.kind in (Kind.MAIN, Kind.EXTREME, Kind.SAMPLE) or one == linear(0)):
            return one
    return UNRELATED if left.is_uniform and right.is_uniform else own(TOGETHER)
