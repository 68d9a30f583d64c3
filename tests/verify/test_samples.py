"""Samples of batches over ranks: none missing, none twice, in the original's batches."""

from __future__ import annotations

from typing import Any

import pytest

from accelify.verify.compare.samples import compare
from accelify.verify.compare.verdict import Verdict
from accelify.verify.events import RankRecord
from accelify.verify.lines import LineMap
from accelify.verify.runs import Run


def batches(*indices: list[int], ended: bool = True, number: int = 0) -> RankRecord:
    """A rank that took these batches of one loader in one pass."""
    key = ["train.py", 3, 0]
    taken: list[dict[str, Any]] = [
        {"key": key, "number": number, "position": position, "indices": batch}
        for position, batch in enumerate(indices)
    ]
    return RankRecord(
        events={"batch": taken, "pass_ended": [{"key": key, "number": number}] if ended else []}
    )


def verdict(original: RankRecord, *ranks: RankRecord, exact: bool = False) -> tuple[Verdict, str]:
    runs = Run("original", 1, [original], 1.0), Run("converted", len(ranks), list(ranks), 1.0)
    (check,) = compare(*runs, LineMap({}), exact)
    return check.verdict, check.sentence


def test_shares_of_each_batch_are_equal() -> None:
    assert verdict(batches([1, 2], [3, 4]), batches([1], [3]), batches([2], [4]))[0] is Verdict.EQUAL


def test_a_rank_without_samples_repeats_the_last_which_weighs_nothing() -> None:
    assert verdict(batches([1, 2], [3]), batches([1], [3]), batches([2], [3]))[0] is Verdict.EQUAL


def test_every_rank_with_all_samples_is_equal() -> None:
    assert verdict(batches([1, 2]), batches([1, 2]), batches([2, 1]))[0] is Verdict.EQUAL


@pytest.mark.parametrize(
    ("ranks", "words"),
    [
        ((batches([1], [3]), batches([2], [5])), "batch 2: 1 of the original's 2 samples are missing"),
        (
            (batches([1, 2], [3]), batches([2, 1, 1], [4])),
            "batch 1: 3 samples are not in the original's batch",
        ),
        ((batches([1]), batches([2])), "1 batches, in the original 2"),
        ((batches([1], [3], [5]), batches([2], [4], [6])), "3 batches, in the original 2"),
    ],
    ids=["lost", "twice", "too-few-batches", "too-many-batches"],
)
def test_lost_and_repeated_samples_are_different(ranks: tuple[RankRecord, ...], words: str) -> None:
    found, sentence = verdict(batches([1, 2], [3, 4]), *ranks)
    assert found is Verdict.DIFFERENT
    assert words in sentence


def test_a_run_that_was_cut_short_is_compared_as_far_as_it_goes() -> None:
    assert (
        verdict(batches([1, 2], [3, 4]), batches([1], ended=False), batches([2], ended=False))[0]
        is Verdict.EQUAL
    )


def test_on_one_process_the_order_counts() -> None:
    assert verdict(batches([1, 2]), batches([2, 1]), exact=True)[0] is Verdict.DIFFERENT
    assert verdict(batches([1, 2]), batches([1, 2]), exact=True)[0] is Verdict.EQUAL


def test_a_pass_that_is_not_made_is_different() -> None:
    assert verdict(batches([1, 2]), batches([1, 2], number=1))[0] is Verdict.DIFFERENT
