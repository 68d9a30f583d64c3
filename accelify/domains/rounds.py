"""What a loop makes of a value over its rounds: totals, and what one round leaves to the next."""

from __future__ import annotations

from accelify.domains.placement import (
    CARRIED,
    SAME,
    SHARD,
    UNRELATED,
    Kind,
    Placement,
    added,
    exponent_sum,
    joined,
    linear,
    of_round,
    own,
    same,
    wide,
)
from accelify.domains.replacing import replace

# Of what a round adds: rows of all ranks, put at the end of those that are there.
APPENDED = "at the end"
# Of what a round begins a total with: another way through the round adds to it, or it is no total.
BEGUN = "begun"


def accumulated(
    head: Placement | None, delta: Placement, shared: bool, samples: Placement = SAME
) -> Placement:
    """A value that a loop adds something to in each round, after the loop.

    Args:
        head: before the loop; None where it was nothing (zero).
        delta: what one round adds.
        shared: whether the rounds of the loop are shared out among the ranks.
        samples: what the rows are that the loop goes over one by one, SAME where it goes over something else.
    """
    total = delta
    if delta.needs == APPENDED:
        # The rows of all ranks, or of this rank's share, one round's after the other's; or more rows of one round.
        total = SHARD if delta.kind is Kind.ROUND else SAME if samples.is_same else UNRELATED
        total = total if shared else replace(delta, needs="")
    elif samples.kind is Kind.WIDE and delta.kind in (Kind.SAME, Kind.SAMPLE):
        total = wide(1) if delta.degree == 0 else wide(None)
    elif samples.kind is Kind.SHARD and delta.kind in (Kind.SAME, Kind.SHARD):
        total = linear(1 if delta.kind is Kind.SHARD else None if delta.degree is None else delta.degree + 1)
    elif samples.kind is Kind.ROUND and delta.kind is Kind.SAME:
        total = replace(of_round(0 if delta.degree == 0 else None), samples=1)
    elif samples.kind is Kind.ROUND and delta.kind is Kind.ROUND:
        total = replace(delta, samples=exponent_sum(delta.samples, 1, 1), even=False)
    elif shared and delta.phase:
        # It grows from round to round, by other steps than the original's.
        total = UNRELATED if delta.is_uniform else own("put together first")
    elif delta.kind is Kind.EXTREME:
        total = own("put together in each round")
    elif shared:
        if delta.kind is Kind.SAME:
            total = same(exponent_sum(delta.degree, 1, 1))
        elif delta.kind in (Kind.LINEAR, Kind.ROUND):
            total = linear(exponent_sum(delta.degree, 1, 1))
        elif delta.kind is Kind.WIDE:
            total = same(exponent_sum(1, delta.degree, -1)) if not delta.rows else UNRELATED
        elif delta.kind is Kind.PARTS:
            total = UNRELATED
        elif delta.kind is not Kind.CLOCK:
            total = own("put together in each round")
    return total if head is None else added(head, total)


def carried(before: Placement, written: Placement, bound: bool = True) -> Placement:
    """What a rank finds from its last round, in a loop whose rounds are shared out: the original's was another's.

    Args:
        before: what is there before the loop.
        written: what a round writes.
        bound: whether there is anything before the loop.
    """
    found = joined(before, written)
    if found.kind is Kind.ROUND and bound:
        return replace(found, degree=None, even=False, needs=CARRIED)
    if found.kind in (Kind.SAME, Kind.ROUND, Kind.WIDE):
        return replace(found, degree=None, even=False)
    return found if found.kind in (Kind.OWN, Kind.CLOCK) else own("put together first")


def is_mean_of_round(place: Placement) -> bool:
    """Whether it is a mean over the rows of one round, weighted or not, or of one round of every rank, or of a share
    of one."""
    if place.kind is Kind.LINEAR:
        return place.degree == 0 and not place.phase
    if place.rows or place.even or place.degree != 0:
        return False
    return place.kind is Kind.WIDE or (place.kind is Kind.ROUND and (place.samples == 0 or place.mixed))


def is_sum_of_share(place: Placement) -> bool:
    """Whether it is a sum, or a count, over the samples that one process has."""
    if place.kind is Kind.ROUND:
        return not place.rows and place.degree == 0 and place.samples == 1
    return place.kind is Kind.LINEAR and place.degree == 1
