"""Verdicts on made-up runs: what counts as rounding, what does not, and what is said about it."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from accelify.verify.compare.losses import compare, relative_differences, tolerances
from accelify.verify.compare.verdict import Check, Verdict
from accelify.verify.converted import Converted
from accelify.verify.events import Loss, RankRecord, Step
from accelify.verify.live import describe
from accelify.verify.runs import Run
from accelify.verify.session import Report
from accelify.verify.show import explain, notes
from accelify.verify.unseen import Unseen

LOSSES = [2.0, 1.0, 0.5, 0.25]


def rank(
    losses: list[float],
    *,
    scale: float = 1.0,
    rate: float = 0.1,
    weights: str = "w",
    update: float | None = None,
    reasons: dict[str, str] | None = None,
    skips: tuple[int, ...] = (),
) -> RankRecord:
    """A rank whose optimizer stepped after each backward but those in `skips`."""
    record = RankRecord(weights=weights, parameters=2, ended="steps", reasons=reasons or {})
    for number, value in enumerate(losses):
        record.losses.append(Loss(value, scale, value * scale, len(record.steps), "float32"))
        if number not in skips:
            record.steps.append(Step(0, (rate,)))
    record.deviation = None if update is None else {"update": update, "start": 0.0}
    return record


def run(*ranks: RankRecord, failure: str | None = None) -> Run:
    return Run("converted", len(ranks), list(ranks), 1.0, failure)


def test_equal_to_the_bit_is_identical_also_with_nan() -> None:
    losses = [2.0, math.nan]
    assert compare(run(rank(losses)), run(rank(losses))).verdict is Verdict.EQUAL


def test_ranks_are_averaged_by_their_scales() -> None:
    shares = run(rank([4.0], scale=0.5, weights="x"), rank([2.0], scale=1.5, weights="x"))
    assert shares.losses == [2.5]
    assert compare(run(rank([2.5])), shares).verdict is Verdict.ROUNDING


def test_rounding_grows_with_the_steps() -> None:
    late = [*LOSSES[:3], LOSSES[3] * (1 + 1.5e-5)]
    early = [LOSSES[0] * (1 + 1.5e-5), *LOSSES[1:]]
    assert compare(run(rank(LOSSES)), run(rank(late))).verdict is Verdict.ROUNDING
    comparison = compare(run(rank(LOSSES)), run(rank(early)))
    assert comparison.verdict is Verdict.DIFFERENT
    assert comparison.first is not None
    assert comparison.first.number == 1


def test_no_precision_makes_rounding_of_more_than_a_twentieth() -> None:
    original = run(rank([1.0] * 40))
    original.ranks[0].autocast = "bfloat16"
    assert tolerances(original)[0] == 0.04
    assert tolerances(original)[-1] == 0.05
    assert len(set(tolerances(run(rank([1.0] * 4, skips=(0, 1, 2, 3)))))) == 1


def test_it_is_said_why_more_is_put_down_to_rounding() -> None:
    original, other = run(rank(LOSSES)), run(rank([*LOSSES[:3], LOSSES[3] * 1.002], weights="x", update=1e-4))
    lively = run(rank([*LOSSES[:3], LOSSES[3] * 1.001], update=1e-6))
    assert "gradients disturbed" in explain(compare(original, other, control=lively))[0]
    original.ranks[0].autocast = "bfloat16"
    assert explain(compare(original, other))[0].endswith("more is allowed, as it computes in bfloat16")


def test_weights_that_are_equal_are_not_given_a_distance() -> None:
    shares = run(rank(LOSSES), rank([*LOSSES[:3], LOSSES[3] * (1 + 1e-7)], update=1e-9))
    shares.ranks[0].deviation = {"update": 0.0, "start": 0.0}
    (line,) = explain(compare(run(rank(LOSSES)), shares))
    assert "equal to rounding" in line
    assert "weights" not in line


@pytest.mark.parametrize(
    ("skips", "said"),
    [((), "4 optimizer steps; the"), ((0, 2), "2 optimizer steps, 4 calls of `backward`; the")],
)
def test_the_loss_of_the_original_is_that_of_backward(skips: tuple[int, ...], said: str) -> None:
    report = Report(Path("train.py"), Converted(), run(rank(LOSSES, skips=skips)))
    assert said in next(notes(report))
    assert "loss, as `backward` gets it, goes from 2 to 0.25." in next(notes(report))


def test_steps_of_several_optimizers_are_told_as_such() -> None:
    original = run(rank(LOSSES))
    original.ranks[0].steps += [replace(step, optimizer=1) for step in original.ranks[0].steps[:3]]
    report = Report(Path("train.py"), Converted(), original)
    assert next(notes(report)).startswith("7 steps of 2 optimizers; the original's loss")


def test_figures_of_one_statement_that_go_wrong_are_one_line() -> None:
    """Not those of another line, nor files that one line writes."""
    comparison = compare(run(rank(LOSSES)), run(rank(LOSSES)))
    for aspect, line, numbers in (("logged", 3, range(15)), ("logged", 4, range(1)), ("files", 3, range(2))):
        for number in numbers:
            site = ("/w/train.py", line)
            check = Check(aspect, f"{aspect} {line} {number}", Verdict.DIFFERENT, f"no. {number}", site, site)
            comparison.checks.append(check)
    found = [line.partition(": ")[2] for line in explain(comparison) if "different" in line]
    assert found[0] == "logged figures different, train.py line 3: no. 0; so are 14 more figures of this line"
    assert found[1] == "logged figures different, train.py line 4: no. 0"
    assert [line.partition(",")[0] for line in found[2:]] == ["files different"] * 2


def test_the_line_of_a_run_fits_a_terminal() -> None:
    what = "the original with 2 batches in one, at its own rates"
    line = describe(what, 30, 60, 0.69314, 20.0, 78)
    assert len(line) <= 78
    assert line.startswith("the original with 2 batches in")
    assert line.endswith("…: step 30 of 60, loss 0.6931, about 20 s left")
    assert describe("it", 0, 60, None, 2.2, 78) == "it: starting, 2 s"


def test_losses_near_zero_are_measured_by_the_usual_size() -> None:
    assert relative_differences([1.0, 1.0, 0.0], [1.0, 1.0, 1e-7])[2] < 1.1e-6
    assert relative_differences([1.0, 1.0], [1.0, math.nan])[1] == math.inf


def test_equal_losses_with_other_weights_are_different() -> None:
    comparison = compare(run(rank(LOSSES)), run(rank(LOSSES, weights="x", update=0.1)))
    assert comparison.verdict is Verdict.DIFFERENT
    assert "weights end apart by 1.0e-01 of how far training moved them" in comparison.reason
    assert compare(run(rank(LOSSES)), run(rank(LOSSES, weights="x", update=1e-6))).verdict is Verdict.ROUNDING


def test_another_learning_rate_is_different_whatever_the_reasons() -> None:
    original = run(rank(LOSSES, reasons={"dropout": "p=0.5"}))
    comparison = compare(original, run(rank(LOSSES, rate=0.2), rank(LOSSES, rate=0.2)))
    assert comparison.verdict is Verdict.DIFFERENT
    assert "learning rate of step 1" in comparison.reason


def test_the_first_loss_told_is_one_that_rounding_does_not_explain() -> None:
    losses = [LOSSES[0] * (1 + 1e-7), LOSSES[1], 0.6, 0.3]
    comparison = compare(run(rank(LOSSES)), run(rank(losses, rate=0.2)))
    assert "the learning rate of step 1 is another one" in comparison.reason
    assert comparison.first is not None
    assert comparison.first.number == 3


def test_reasons_count_on_several_processes_only() -> None:
    original = run(rank(LOSSES, reasons={"dropout": "p=0.5"}))
    other = [value * 1.1 for value in LOSSES]
    assert compare(original, run(rank(other))).verdict is Verdict.DIFFERENT
    assert compare(original, run(rank(other), rank(other))).verdict is Verdict.NOT_COMPARABLE


def test_ranks_with_other_weights_are_different_whatever_the_reasons() -> None:
    original = run(rank(LOSSES, reasons={"dropout": "p=0.5"}))
    comparison = compare(original, run(rank(LOSSES), rank(LOSSES, weights="x")))
    assert comparison.verdict is Verdict.DIFFERENT
    assert "different weights" in comparison.reason


def test_fewer_calls_of_backward_are_different() -> None:
    comparison = compare(run(rank(LOSSES)), run(rank(LOSSES[:2])))
    assert comparison.verdict is Verdict.DIFFERENT
    assert "backward 4 times, this run 2 times" in comparison.reason


def test_a_disturbed_original_says_how_far_rounding_carries() -> None:
    original = run(rank(LOSSES))
    other = run(rank([*LOSSES[:3], LOSSES[3] * 1.002], weights="x", update=1e-4))
    calm = run(rank([*LOSSES[:3], LOSSES[3] * 1.000001], update=1e-6))
    lively = run(rank([*LOSSES[:3], LOSSES[3] * 1.001], update=1e-6))
    wild = run(rank([LOSSES[0] * 1.1, *LOSSES[1:]], update=1e-6))
    far = run(rank([*LOSSES[:3], LOSSES[3] * 1.2], weights="x", update=1e-4))
    assert compare(original, other).verdict is Verdict.DIFFERENT
    assert compare(original, other, control=calm).verdict is Verdict.DIFFERENT
    assert compare(original, other, control=lively).verdict is Verdict.ROUNDING
    assert compare(original, far, control=lively).verdict is Verdict.DIFFERENT
    assert compare(original, far, control=wild).verdict is Verdict.NOT_COMPARABLE


def test_fp16_may_skip_other_steps_when_all_agreed_until_then() -> None:
    original = run(rank(LOSSES, reasons={"loss scaling": "fp16"}, skips=(1,)))
    same_until = [LOSSES[0], LOSSES[1], 0.7, 0.9]
    other = [rank(same_until, weights="x") for _ in range(2)]
    comparison = compare(original, run(*other))
    assert comparison.verdict is Verdict.NOT_COMPARABLE
    assert "fp16 loss scaling" in comparison.reason
    apart_before = [rank([LOSSES[0], 1.5, 0.7, 0.9], weights="x") for _ in range(2)]
    assert compare(original, run(*apart_before)).verdict is Verdict.DIFFERENT


def test_a_failed_run_is_told_as_it_is() -> None:
    comparison = compare(run(rank(LOSSES)), run(rank(LOSSES[:1]), failure="line 3: ValueError: no"))
    assert comparison.verdict is Verdict.FAILED
    assert explain(comparison)[0].endswith("failed: line 3: ValueError: no")


def test_first_difference_is_part_of_what_is_said() -> None:
    comparison = compare(run(rank(LOSSES)), run(rank([2.0, 1.1, 0.5, 0.25])))
    assert "loss 2: 1 in the original, 1.1 in this run" in explain(comparison)[0]


def test_buffers_differ_within_a_step_and_not_at_the_end() -> None:
    ranks = rank(LOSSES), rank(LOSSES)
    ranks[0].buffers, ranks[1].buffers = "a", "b"
    assert run(*ranks).uneven is None
    for one in ranks:
        one.ended = "finished"
    assert run(*ranks).uneven == "its processes end with different weights"


def test_losses_that_are_alike_are_no_repeated_work_where_the_samples_are_others() -> None:
    ranks = rank([0.0, 0.0]), rank([0.0, 0.0])
    assert run(*ranks).repeated
    for number, one in enumerate(ranks):
        one.events["batch"] = [{"key": ["train.py", 1, 0], "number": 1, "position": 0, "indices": [number]}]
    assert not run(*ranks).repeated
    for one in ranks:
        # The loader that is trained on is not shared out, only another one is.
        one.events["batch"].append({"key": ["train.py", 2, 0], "number": 1, "position": 0, "indices": [5]})
    assert run(*ranks).repeated


def test_what_is_different_without_chance_too_is_not_excused_by_chance() -> None:
    comparison = compare(run(rank(LOSSES)), run(rank(LOSSES)))
    for line, verdict in ((3, Verdict.DIFFERENT), (3, Verdict.NOT_COMPARABLE), (4, Verdict.NOT_COMPARABLE)):
        site = ("/w/train.py", line)
        comparison.checks.append(Check("printed", f"printed {line}", verdict, "batch norm", site, site))
    (excused,) = [line for line in explain(comparison) if "not comparable" in line]
    assert "(train.py line 4)" in excused


@pytest.mark.parametrize(
    ("loaders", "ends"),
    [(True, "ends within the original's first epoch"), (False, "does not come to the end")],
)
def test_only_a_script_with_loaders_has_an_epoch(loaders: bool, ends: str) -> None:
    report = Report(Path("train.py"), Converted(), run(rank(LOSSES)))
    report.unseen = Unseen(("printing (line 3)",), None, loaders)
    assert f"A run of 4 steps {ends}; not reached: printing (line 3); give more --steps." in list(
        notes(report)
    )
