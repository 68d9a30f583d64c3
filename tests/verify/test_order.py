"""Vector clocks over what ranks took part in, without any process."""

from __future__ import annotations

from typing import Any

import pytest

from accelify.verify.compare.order import HappensBefore
from accelify.verify.events import RankRecord


def record(world: int, *events: dict[str, Any] | str) -> RankRecord:
    """A rank's syncs, in order; a text stands for something else that it did. `n` counts all of them."""
    syncs = [{**event, "n": n} for n, event in enumerate(events) if isinstance(event, dict)]
    group = {"name": "g", "ranks": list(range(world)), "n": -1}
    return RankRecord(events={"sync": syncs, "group": [group]})


def everybody(first: int, last: int | None = None) -> dict[str, Any]:
    return {"all": {"g": [[first, last or first]]}}


def one(kind: str, number: int, peer: int, part: str = "whole") -> dict[str, Any]:
    return {part: [[kind, "g", number, peer]]}


def test_a_collective_of_all_orders_both_ways() -> None:
    order = HappensBefore([record(2, "a", everybody(1), "b"), record(2, "c", everybody(1), "d")])
    assert order.before((0, 0), (1, 2))
    assert order.before((1, 0), (0, 2))
    assert not order.before((0, 0), (1, 0))
    assert not order.before((0, 2), (1, 2))
    assert order.before((0, 0), (0, 2))


def test_the_same_place_is_the_same_number() -> None:
    """What is between the fourth and the fifth on one rank is not before what comes after the fourth on another."""
    order = HappensBefore(
        [
            record(2, everybody(1, 4), "a", everybody(5, 9)),
            record(2, everybody(1, 4), "b", everybody(5), "c", everybody(6, 9)),
        ]
    )
    assert not order.before((0, 1), (1, 1))
    assert order.before((0, 1), (1, 3))
    assert order.before((1, 1), (0, 3))


@pytest.mark.parametrize(
    ("kind", "forth", "back"), [("from", True, False), ("to", False, True), ("all", True, True)]
)
def test_a_direction_orders_one_way(kind: str, forth: bool, back: bool) -> None:
    ranks = [record(2, "a", one(kind, 1, 0), "b"), record(2, "c", one(kind, 1, 0), "d")]
    order = HappensBefore(ranks)
    assert order.before((0, 0), (1, 2)) is forth
    assert order.before((1, 0), (0, 2)) is back


def test_a_broadcast_says_nothing_of_a_third_rank() -> None:
    ranks = [record(3, "a", one("from", 1, 0), "b") for _ in range(3)]
    order = HappensBefore(ranks)
    assert order.before((0, 0), (2, 2))
    assert not order.before((1, 0), (2, 2))


def test_what_a_rank_heard_of_it_passes_on() -> None:
    ranks = [
        record(3, "a", one("to", 1, 1), "b"),
        record(3, "c", one("to", 1, 1), one("from", 2, 1)),
        record(3, one("to", 1, 1), one("from", 2, 1), "d"),
    ]
    assert HappensBefore(ranks).before((0, 0), (2, 2))


def test_a_message_orders_two() -> None:
    ranks = [record(2, "a", one("send", 1, 1), "b"), record(2, "c", one("receive", 1, 0), "d")]
    order = HappensBefore(ranks)
    assert order.before((0, 0), (1, 2))
    assert not order.before((1, 0), (0, 2))


def test_an_asynchronous_one_orders_from_its_wait() -> None:
    issued, waited = one("all", 1, -1, "issued"), one("all", 1, -1, "waited")
    ranks = [record(2, "a", issued, "b", waited, "c"), record(2, "d", issued, "e", waited, "f")]
    order = HappensBefore(ranks)
    assert order.before((0, 0), (1, 4))
    assert not order.before((0, 0), (1, 2)), "not waited for yet"
    assert not order.before((0, 2), (1, 4)), "after it began"


def test_a_rank_that_never_came_holds_nobody_up() -> None:
    order = HappensBefore([record(2, "a", everybody(1), "b"), record(2, "c")])
    assert not order.before((0, 0), (1, 0))
    assert not order.before((1, 0), (0, 2))
