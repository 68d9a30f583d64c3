"""What collectives make of a value of each rank: reductions, gathers and broadcasts."""

from __future__ import annotations

from accelify.domains.placement import (
    EACH,
    SAME,
    TOTAL,
    UNRELATED,
    Kind,
    Placement,
    alone,
    exponent_sum,
    is_figure,
    own,
    same,
    wide,
)

# How a reason ends that says that a mean of each rank is reduced.
OF_MEANS = ", a mean on each rank"


@alone
def all_reduced(place: Placement, operation: str) -> Placement:
    """A value reduced over the ranks with `sum`, `mean`, `max` or `min`."""
    more = {"sum": 1, "mean": 0}.get(operation)
    if place.kind is Kind.CLOCK:  # as good as that of any run, and the same on all ranks
        place = same(place.degree)
    if place.kind is Kind.ROUND:
        return wide(None if more is None else exponent_sum(more, place.degree, -1))
    if place.kind in (Kind.SAME, Kind.LINEAR):
        if place.kind is Kind.LINEAR and operation == "sum" and place.degree == 1:
            return TOTAL
        if more is not None:
            return same(exponent_sum(place.degree, more, -1))
        return place if place.kind is Kind.SAME else UNRELATED
    if place.kind is Kind.EXTREME:
        return SAME if operation == place.needs else UNRELATED
    if place.kind is Kind.WIDE:
        return (
            place
            if not more
            else wide(exponent_sum(place.degree, 1, 1))
            if not place.rows
            else wide(None, rows=True)
        )
    return UNRELATED


@alone
def gathered(place: Placement) -> Placement:
    """The values, or the rows, of all ranks one after the other."""
    if place.turned:
        return UNRELATED if place.kind is not Kind.ROUND else wide(None, rows=True)
    if place.kind is Kind.ROUND:
        form = "" if place.rows else EACH
        return Placement(Kind.WIDE, 0 if place.degree == 0 else None, rows=True, form=form)
    if place.kind is Kind.SHARD:
        return SAME
    if place.kind in (Kind.SAME, Kind.LINEAR):
        return Placement(Kind.PARTS, place.degree)
    if place.kind is Kind.WIDE:
        return wide(None, place.rows)
    return place if place.kind is Kind.CLOCK else UNRELATED


@alone
def broadcast(place: Placement) -> Placement:
    """The main process's value on all ranks."""
    if place.kind in (Kind.MAIN, Kind.CLOCK) or place == own("broadcast"):
        # Of what differs between any two runs, such as a name made up at random, the main process's is as good.
        return SAME
    return place if place.is_uniform else UNRELATED


def words_of(word: str, place: Placement) -> str:
    """How a reason says what a collective of torch.distributed makes of a value.

    Args:
        word: its name.
        place: of the value on each rank.
    """
    if "gather" in word:
        return "gathered"
    is_mean = is_figure(place) and place.samples == 0 and place.degree == 0 and not place.mixed
    return f"reduced by {word}{OF_MEANS if is_mean else ''}" if "reduce" in word else word
