"""The algebra of placements against values: what N ranks have, and what the original has, before and after.

A family is a value as the original and the ranks have it, in each round of a loop whose rounds are shared out (round i
of rank r is the original's round i * N + r). It is drawn so that it satisfies a placement's definition, goes through
the operation itself, and has to satisfy the placement that the algebra gives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from accelify.domains.collectives import all_reduced, broadcast, gathered
from accelify.domains.placement import (
    CLOCK,
    MAIN,
    OWN,
    ROUND,
    ROUND_ROWS,
    SAME,
    SHARD,
    TOTAL,
    UNRELATED,
    WIDE_ROWS,
    Kind,
    Placement,
    added,
    function,
    joined,
    linear,
    multiplied,
    of_round,
    own,
    reduced,
    same,
    wide,
)
from accelify.domains.rounds import accumulated, carried

Array = Any
ROWS = 3
PER_ROUND = (Kind.ROUND, Kind.WIDE)
EXTREMES = [Placement(Kind.EXTREME, needs=needs) for needs in ("max", "min", "")]
COUNTS = [
    Placement(Kind.ROUND, even=True),
    Placement(Kind.WIDE, 1, even=True),
    Placement(Kind.WIDE, None, even=True),
]
DEGREES = (-1, 0, 1, 2, None)
PLACES = [
    *map(same, DEGREES),
    *map(linear, DEGREES[:-1]),
    Placement(Kind.LINEAR, 1, rows=True),
    TOTAL,
    *map(of_round, DEGREES),
    of_round(0, rows=True),
    of_round(1, rows=True),
    of_round(None, rows=True),
    *map(wide, DEGREES),
    WIDE_ROWS,
    wide(None, rows=True),
    SHARD,
    *(Placement(Kind.PARTS, degree) for degree in DEGREES),
    *EXTREMES,
    *COUNTS,
    MAIN,
    CLOCK,
    OWN,
]
place = st.sampled_from(PLACES)
fixed_place = st.sampled_from([place for place in PLACES if place.kind not in PER_ROUND])


@dataclass(frozen=True)
class World:
    """How many ranks and rounds of each there are, and where numbers come from."""

    ranks: int
    rounds: int
    seed: int

    @property
    def numbers(self) -> np.random.Generator:
        return np.random.default_rng(self.seed)


@dataclass(frozen=True)
class Family:
    """A value: the original's in all its rounds, and each rank's in its own."""

    original: list[Array]
    ranks: list[list[Array]]


worlds = st.builds(World, st.sampled_from([1, 2, 3, 4]), st.sampled_from([1, 2, 3]), st.integers(0, 10**6))


def fuzzed(examples: int) -> settings:
    """The same examples in every run."""
    return settings(max_examples=examples, deadline=None, derandomize=True)


def drawn(place: Placement, world: World, numbers: np.random.Generator) -> Family:
    """A value that satisfies a placement's definition and nothing more."""
    n, k = world.ranks, world.rounds

    def some(*shape: int) -> Array:
        return numbers.uniform(0.5, 3, (*shape, 2)) * numbers.choice([-1, 1], (*shape, 2))

    def constant(original: Array, ranks: Sequence[Array]) -> Family:
        return Family([original] * (n * k), [[value] * k for value in ranks])

    if place.kind is Kind.SAME:
        value = some()
        return constant(some() if place.degree is None else n**place.degree * value, [value] * n)
    if place.kind is Kind.LINEAR:
        assert place.degree is not None
        values = [some()] * n if place.rows else [some() for _ in range(n)]
        return constant(float(n) ** place.degree * np.mean(values, axis=0), values)
    if place.kind is Kind.PARTS:
        values = some(n)
        return constant(
            some() if place.degree is None else float(n) ** place.degree * values.mean(axis=0), [values] * n
        )
    if place.kind is Kind.SHARD:
        values = [some(ROWS) for _ in range(n)]
        return constant(np.concatenate(values), values)
    if place.kind is Kind.EXTREME:
        values = [some() for _ in range(n)]
        extreme = {"max": np.max, "min": np.min}.get(place.needs, [np.max, np.min][numbers.integers(2)])
        return constant(extreme(values, axis=0), values)
    if place.kind is Kind.MAIN:
        values = [some() for _ in range(n)]
        return constant(values[0], values)
    if place.kind in (Kind.CLOCK, Kind.OWN):
        return Family([some() for _ in range(n * k)], [[some() for _ in range(k)] for _ in range(n)])
    count = np.asarray(float(numbers.integers(1, 5)))
    rounds = [count if place.even else some(ROWS) if place.rows else some() for _ in range(n * k)]
    if place.kind is Kind.ROUND:
        if place.degree is None:
            return Family(
                rounds, [[some(ROWS) if place.rows else some() for _ in range(k)] for _ in range(n)]
            )
        return Family(
            rounds, [[rounds[i * n + r] / float(n) ** place.degree for i in range(k)] for r in range(n)]
        )
    groups = [rounds[i * n : i * n + n] for i in range(k)]
    if place.degree is None:
        other = some(n * ROWS) if place.rows else some()
        together = [np.asarray(2.5) if place.even else other for _ in groups]
    else:
        mean = [float(n) ** place.degree * np.mean(group, axis=0) for group in groups]
        together = [np.concatenate(group) for group in groups] if place.rows else mean
    return Family(rounds, [together] * n)


def close(left: Array, right: Array) -> bool:
    return np.shape(left) == np.shape(right) and bool(np.allclose(left, right, rtol=1e-9, atol=1e-9))


def alike(values: Sequence[Array]) -> bool:
    return all(close(values[0], value) for value in values[1:])


def holds(place: Placement, family: Family, world: World) -> bool:
    """Whether a value satisfies a placement's definition."""
    n, k = world.ranks, world.rounds
    if place.is_uniform and not all(alike([family.ranks[r][i] for r in range(n)]) for i in range(k)):
        return False
    if place.even and not alike(family.original):
        return False
    for i in range(k):
        values = [family.ranks[r][i] for r in range(n)]
        group = family.original[i * n : i * n + n]
        if place.kind is Kind.ROUND and place.rows and any(len(value) != ROWS for value in values):
            return False
        if place.degree is not None and not _related(place, values, group):
            return False
    return True


def _related(place: Placement, values: list[Array], group: list[Array]) -> bool:
    assert place.degree is not None
    factor = float(len(values)) ** place.degree
    if place.kind is Kind.SAME:
        return all(close(value, factor * values[0]) for value in group)
    if place.kind is Kind.LINEAR:
        return all(close(value, factor * np.mean(values, axis=0)) for value in group)
    if place.kind is Kind.PARTS:
        return all(close(value, factor * np.mean(values[0], axis=0)) for value in group)
    if place.kind is Kind.SHARD:
        return all(close(value, np.concatenate(values)) for value in group)
    if place.kind is Kind.EXTREME:
        highest, lowest = np.max(values, axis=0), np.min(values, axis=0)
        allowed = {"max": [highest], "min": [lowest]}.get(place.needs, [highest, lowest])
        return all(np.any([np.isclose(value, one) for one in allowed], axis=0).all() for value in group)
    if place.kind is Kind.ROUND:
        return all(close(value, factor * mine) for value, mine in zip(group, values, strict=True))
    if place.kind is Kind.WIDE:
        together = np.concatenate(group) if place.rows else factor * np.mean(group, axis=0)
        return close(values[0], together)
    return place.kind is not Kind.MAIN or all(close(value, values[0]) for value in group)


def mapped(call: Callable[..., Array], *families: Family) -> Family:
    """The same call in the original and on every rank, in each round."""
    try:
        return Family(
            [call(*values) for values in zip(*(family.original for family in families), strict=True)],
            [
                [call(*values) for values in zip(*rounds, strict=True)]
                for rounds in zip(*(family.ranks for family in families), strict=True)
            ],
        )
    except ValueError:  # arrays whose shapes do not go together
        assume(False)
        raise


@pytest.mark.parametrize("wanted", PLACES, ids=str)
def test_a_drawn_value_satisfies_its_placement(wanted: Placement) -> None:
    for seed in range(20):
        world = World(seed % 4 + 1, seed % 3 + 1, seed)
        assert holds(wanted, drawn(wanted, world, world.numbers), world)


@pytest.mark.parametrize("wanted", [place for place in PLACES if place.degree is not None], ids=str)
def test_a_value_of_no_relation_satisfies_no_placement_that_claims_one(wanted: Placement) -> None:
    world = World(3, 2, 7)
    claims = wanted.kind not in (Kind.OWN, Kind.CLOCK)
    assert holds(wanted, drawn(OWN, world, world.numbers), world) is not claims


def _mixing(*values: Array) -> Array:
    total = sum(np.sin(value).sum() * (number + 1) for number, value in enumerate(values))
    return np.tanh(total) * np.ones(2)


def _by_rows(*values: Array) -> Array:
    found = np.sin(values[0])
    for number, value in enumerate(values[1:], 2):
        found = found * np.cos(number * value) + value
    return found


@fuzzed(400)
@given(worlds, st.lists(place, min_size=1, max_size=3), st.sampled_from(["any", "rows", "linear"]))
def test_function(world: World, places: list[Placement], how: str) -> None:
    numbers = world.numbers
    families = [drawn(one, world, numbers) for one in places]
    parameter = [one.is_same for one in places]

    def linearly(*values: Array) -> Array:
        scale = 1.0
        for value, is_parameter in zip(values, parameter, strict=True):
            scale = scale * np.abs(value) if is_parameter else scale
        return sum(
            (number + 1) * value * scale for number, value in enumerate(values) if not parameter[number]
        )

    if how == "linear" and all(parameter):
        assume(False)
    call = {"any": _mixing, "rows": _by_rows, "linear": linearly}[how]
    found = function(places, rowwise=how == "rows", linearly=how == "linear")
    assert holds(found, mapped(call, *families), world), found


@fuzzed(400)
@given(worlds, place, place, st.booleans())
def test_added(world: World, left: Placement, right: Placement, plus: bool) -> None:
    numbers = world.numbers
    one, other = drawn(left, world, numbers), drawn(right, world, numbers)
    found = added(left, right)
    # The difference with something that goes down where the other goes up is not for extremes.
    plus = plus or Kind.EXTREME in (left.kind, right.kind)
    assert holds(found, mapped(np.add if plus else np.subtract, one, other), world), found


@fuzzed(400)
@given(worlds, place, place, st.sampled_from([1, -1]))
def test_multiplied(world: World, left: Placement, right: Placement, sign: int) -> None:
    numbers = world.numbers
    one, other = drawn(left, world, numbers), drawn(right, world, numbers)
    found = multiplied(left, right, sign)
    assert holds(found, mapped(np.multiply if sign > 0 else np.divide, one, other), world), found


REDUCTIONS: dict[str, Callable[..., Array]] = {
    "sum": np.sum,
    "mean": np.mean,
    "max": np.max,
    "min": np.min,
    "any": lambda value, axis: np.any(value > 0, axis=axis),
    "all": lambda value, axis: np.all(value > 0, axis=axis),
    "count": lambda value, axis: np.asarray(float(len(value))),
    "median": np.median,
}


@fuzzed(400)
@given(worlds, place, st.sampled_from([*REDUCTIONS]), st.booleans(), st.booleans())
def test_reduced(world: World, of: Placement, operation: str, over_rows: bool, all_axes: bool) -> None:
    whole = drawn(of, world, world.numbers)
    if of.even or (not over_rows and not of.rows) or (of.kind is Kind.LINEAR and of.rows):
        assume(False)
    if operation in ("any", "all"):
        # What is true or false from the start.
        whole = mapped(lambda value: (value > 0).astype(float), whole)
        assume(
            of.kind in (Kind.SHARD, Kind.ROUND, Kind.OWN) and (of.degree == 0 or of.kind is not Kind.ROUND)
        )
    axis = 1 if not over_rows else None if all_axes and of.kind is not Kind.PARTS else 0
    assume(not (axis is None and of.kind is Kind.EXTREME and operation not in ("max", "min")))
    call = REDUCTIONS[operation]
    found = reduced(of, operation, over_rows)
    if of.kind is Kind.PARTS:
        # The original has one part.
        whole = Family([value[None] for value in whole.original], whole.ranks)
    after = mapped(lambda value: np.asarray(call(value, axis=axis), dtype=float), whole)
    if axis == 1 and operation == "count":
        after = mapped(lambda value: np.full(len(value), 2.0), whole)
    assert holds(found, after, world), found


@fuzzed(400)
@given(worlds, st.none() | fixed_place, place, st.booleans(), st.integers(1, 3))
def test_accumulated(
    world: World, head: Placement | None, delta: Placement, shared: bool, times: int
) -> None:
    numbers, n, k = world.numbers, world.ranks, world.rounds
    before = drawn(head, world, numbers) if head is not None else None
    start = mapped(lambda value: value, before) if before is not None else None
    if shared:
        added_up = drawn(delta, world, numbers)
        total = Family([sum(added_up.original)] * (n * k), [[sum(rounds)] * k for rounds in added_up.ranks])
    else:
        added_up = drawn(delta, world, numbers)
        for _ in range(times - 1):
            added_up = mapped(np.add, added_up, drawn(delta, world, numbers))
        total = added_up
    found = accumulated(head, delta, shared)
    after = mapped(np.add, start, total) if start is not None else total
    assert holds(found, after, world), found


@fuzzed(400)
@given(worlds, place, place, st.booleans())
def test_joined(world: World, left: Placement, right: Placement, first: bool) -> None:
    numbers = world.numbers
    one, other = drawn(left, world, numbers), drawn(right, world, numbers)
    found = joined(left, right)
    assert holds(found, one if first else other, world), found


def across(family: Family, call: Callable[[list[Array]], Array]) -> Family:
    """A collective in each round; the original has its value as before."""
    together = [call(list(values)) for values in zip(*family.ranks, strict=True)]
    return Family(family.original, [together] * len(family.ranks))


@fuzzed(400)
@given(worlds, place, st.sampled_from(["sum", "mean", "max", "min"]))
def test_all_reduced(world: World, of: Placement, operation: str) -> None:
    call = {"sum": np.sum, "mean": np.mean, "max": np.max, "min": np.min}[operation]
    found = all_reduced(of, operation)
    if of.kind is Kind.CLOCK:
        assume(False)  # no run has the time of another
    assert holds(
        found, across(drawn(of, world, world.numbers), lambda values: call(values, axis=0)), world
    ), found


@fuzzed(400)
@given(worlds, place)
def test_gathered(world: World, of: Placement) -> None:
    by_rows = (
        (of.rows and of.kind is not Kind.LINEAR)
        or of.kind in (Kind.SHARD, Kind.PARTS)
        or (of.kind is Kind.ROUND and not of.even)
    )
    found = gathered(of)
    if of.even:
        assume(of.kind is not Kind.ROUND)
    call = np.concatenate if by_rows else np.stack
    assert holds(found, across(drawn(of, world, world.numbers), call), world), found


@fuzzed(500)
@given(worlds, place)
def test_broadcast(world: World, of: Placement) -> None:
    found = broadcast(of)
    if of.kind is Kind.CLOCK:
        assume(False)  # no run has the time of another
    assert holds(found, across(drawn(of, world, world.numbers), lambda values: values[0]), world), found


def test_what_scripts_do_comes_out_exact() -> None:
    loss = reduced(ROUND_ROWS, "mean")
    total = accumulated(None, loss, shared=True)
    rounds = same(1)
    assert total == linear(1)
    assert all_reduced(multiplied(total, rounds, -1), "mean") == SAME
    assert multiplied(all_reduced(total, "mean"), rounds, -1) == SAME
    assert multiplied(all_reduced(total, "sum"), SAME, -1).is_same
    # A part of the mean in each round.
    assert accumulated(None, multiplied(loss, rounds, -1), shared=True) == linear(0)
    # Rows gathered in each round, and counted.
    correct, count = reduced(gathered(ROUND_ROWS), "sum"), reduced(gathered(ROUND_ROWS), "count")
    assert accumulated(None, correct, shared=True) == accumulated(None, count, shared=True) == SAME
    assert multiplied(correct, count, -1) == wide(0)
    assert multiplied(all_reduced(ROUND, "sum"), same(-1), -1) == wide(0)
    # Batches that are split: totals of shares.
    assert all_reduced(accumulated(None, reduced(SHARD, "sum"), shared=False), "sum").is_same
    assert all_reduced(reduced(SHARD, "max"), "max") == SAME


@fuzzed(600)
@given(worlds, fixed_place, place)
def test_carried(world: World, before: Placement, written: Placement) -> None:
    numbers, n, k = world.numbers, world.ranks, world.rounds
    start, made = drawn(before, world, numbers), drawn(written, world, numbers)
    original = [start.original[0], *made.original[: n * k - 1]]
    ranks = [[start.ranks[r][0], *made.ranks[r][: k - 1]] for r in range(n)]
    assert holds(carried(before, written), Family(original, ranks), world)


def test_what_differs_between_runs_is_as_good_from_the_main_process() -> None:
    assert broadcast(CLOCK) == broadcast(MAIN) == broadcast(own("broadcast")) == SAME
    assert broadcast(own("put together first")) == UNRELATED
