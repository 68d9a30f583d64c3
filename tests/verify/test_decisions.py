"""Decisions that guard training: the same on every rank and in the original, or the first that differs is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from accelify.verify.compare import decisions
from accelify.verify.compare.decisions import Outcomes, first_difference
from accelify.verify.events import RankRecord
from accelify.verify.lines import LineMap
from accelify.verify.nursery import Nursery
from accelify.verify.runs import Run

from .decision_scripts import RIGHT, WRONG
from .effect_scripts import differences, run_pair

WORDS = {
    "early stop by each rank's share": "the `if` in line 29 was taken on rank 1 at its 3rd time, not on rank 0; in the "
    "original first at the 5th",
    "batches left out by their content": "the `if` in line 15 was taken on rank 0 at its",
    "exception of some batches": "the handler in line 20 was taken on rank",
    "stops earlier everywhere": "the `if` in line 28 was taken at its 4th time, in the original first at the 5th",
}


@pytest.mark.distributed
@pytest.mark.parametrize("name", WRONG)
def test_wrong(nursery: Nursery, tmp_path: Path, name: str) -> None:
    original, other, lines = run_pair(nursery, tmp_path, WRONG[name], may_fail=True)
    found = differences(decisions.compare(original, other, lines, exact=False))
    assert any(WORDS[name] in sentence for sentence in found), found


@pytest.mark.distributed
@pytest.mark.parametrize("name", RIGHT)
def test_right(nursery: Nursery, tmp_path: Path, name: str) -> None:
    original, other, lines = run_pair(nursery, tmp_path, RIGHT[name])
    checks = decisions.compare(original, other, lines, exact=False)
    assert checks
    assert not differences(checks)


def run(*ranks: list[dict[str, Any]], label: str = "converted") -> Run:
    records = [RankRecord(events={"decision": events}) for events in ranks]
    return Run(label, len(records), records, 0.0)


def outcome(
    *runs: int, flags: tuple[str, ...] = (), trained: tuple[int, int, int] = (1, 0, 0)
) -> dict[str, Any]:
    calls = sum(map(abs, runs))
    return {
        "site": ["train.py", 9], "kind": "if", "nth": 0, "runs": list(runs), "digest": 0, "calls": calls,
        "yes": sum(part for part in runs if part > 0), "flags": list(flags), "trained": list(trained),
    }  # fmt: skip


def compared(original: dict[str, Any], *ranks: dict[str, Any], exact: bool = False) -> list[str]:
    checks = decisions.compare(run([original]), run(*([rank] for rank in ranks)), LineMap({}), exact)
    return differences(checks)


def every(n: int, rounds: int, times: int) -> list[int]:
    """Outcomes of `i % n == n - 1` over some rounds, several times."""
    once = [1 if i % n == n - 1 else -1 for _ in range(times) for i in range(rounds)]
    found: list[int] = []
    for one in once:
        if found and (found[-1] > 0) == (one > 0):
            found[-1] += one
        else:
            found.append(one)
    return found


def test_a_period_counted_in_rounds_of_each_process() -> None:
    (sentence,) = compared(outcome(*every(20, 60, 3)), outcome(*every(20, 30, 3)), outcome(*every(20, 30, 3)))
    assert "taken in 3 of 90 rounds, in the original in 9 of 180" in sentence


def test_the_same_share_of_rounds_is_the_same() -> None:
    assert not compared(outcome(*every(4, 32, 2)), outcome(*every(4, 16, 2)), outcome(*every(4, 16, 2)))


def test_what_no_training_depends_on_is_left_alone() -> None:
    quiet = {"trained": (0, 0, 0)}
    assert not compared(outcome(-3, 1, **quiet), outcome(3, -1, **quiet), outcome(-1, 3, **quiet))


def test_a_test_for_the_rank_differs_by_right() -> None:
    flags = {"flags": ("by_rank", "saves"), "trained": (0, 0, 0)}
    assert not compared(
        outcome(2, -2, flags=("saves",), trained=(0, 0, 0)), outcome(2, -2, **flags), outcome(-4, **flags)
    )


def test_one_process_comes_to_everything_as_often() -> None:
    assert compared(outcome(-3, 1), outcome(-2, 1), exact=True)
    assert compared(outcome(-3, 1), outcome(-3), exact=True)
    assert not compared(outcome(-3, 1), outcome(-3, 1), exact=True)


@pytest.mark.parametrize(
    ("first", "second", "position"),
    [
        ((-3, 1), (-2, 1), 3),
        ((1,), (-1,), 1),
        ((2, -2), (2,), None),
        ((), (1,), None),
        ((-1, 1, -1), (-1, 1, 1), 3),
    ],
)
def test_first_difference(first: tuple[int, ...], second: tuple[int, ...], position: int | None) -> None:
    site = ("train.py", 1)
    assert first_difference(Outcomes(site, first), Outcomes(site, second)) == position
    assert first_difference(Outcomes(site, second), Outcomes(site, first)) == position
