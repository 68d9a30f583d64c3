"""Printed lines and logged values of made-up runs: which differences are named, and how."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from accelify.verify.compare.figures import UNREPEATED, compare, shares_shown
from accelify.verify.compare.verdict import NOT_CHECKED, SHARE, Check, Verdict
from accelify.verify.events import Loss, RankRecord
from accelify.verify.lines import LineMap
from accelify.verify.runs import Run

FILE = "/s/train.py"
SAME_LINES = LineMap({})


def line(text: str, number: int = 5, *, n: int = 0, loop: bool = False, **more: Any) -> dict[str, Any]:
    return {"text": text, "site": [FILE, number], "step": 0, "loop": loop, "n": n, **more}


def rank(
    *lines: dict[str, Any],
    losses: tuple[float, ...] = (),
    would: tuple[dict[str, Any], ...] = (),
    kind: str = "line",
) -> RankRecord:
    """A rank that called backward on each loss before it printed anything."""
    record = RankRecord(ended="steps")
    for number, value in enumerate(losses):
        record.losses.append(Loss(value, 1.0, value, number, "float32"))
        record.events.setdefault("loss", []).append({"value": value, "n": number - len(losses)})
    record.events[kind] = [{**event, "n": event["n"] or number} for number, event in enumerate(lines)]
    record.events["would_print"] = list(would)
    return record


def run(*ranks: RankRecord, failure: str | None = None) -> Run:
    return Run("a run", len(ranks), list(ranks), 1.0, failure)


def only(original: Run, other: Run, exact: bool = False, repeats: tuple[Run, Run] | None = None) -> Check:
    (check,) = compare(original, other, SAME_LINES, exact, repeats=repeats)
    return check


def test_the_same_text_is_equal_and_a_close_one_rounding() -> None:
    mine = run(rank(line("loss 0.551234")))
    assert only(mine, run(rank(line("loss 0.551234"))), exact=True).verdict is Verdict.EQUAL
    close = run(rank(line("loss 0.551235")))
    assert only(mine, close).verdict is Verdict.ROUNDING
    assert only(mine, close, exact=True).verdict is Verdict.DIFFERENT


def test_one_share_outside_of_the_loop_is_different_with_both_texts_and_the_ratio() -> None:
    check = only(run(rank(line("valid loss 1.1024"))), run(rank(line("valid loss 0.5512")), rank()))
    assert check.verdict is Verdict.DIFFERENT
    assert check.sentence == (
        'printed "valid loss 0.5512" where the original prints "valid loss 1.1024": '
        "half of it, as where each process has only its share"
    )
    assert (check.key, check.line, check.original) == (f"{FILE}:5", (FILE, 5), (FILE, 5))


def test_a_line_of_every_process_is_counted() -> None:
    check = only(run(rank(line("done"))), run(rank(line("done")), rank(line("done"))))
    assert check.verdict is Verdict.DIFFERENT
    assert check.sentence == 'printed 2 times (by ranks 0 and 1), once in the original: "done"'


def test_lines_that_the_processes_share_out_are_equal_in_any_order() -> None:
    mine = run(rank(line("sample 1"), line("sample 2")))
    assert only(mine, run(rank(line("sample 2")), rank(line("sample 1")))).verdict is Verdict.EQUAL
    assert only(mine, run(rank(line("sample 2")), rank(line("sample 3")))).verdict is Verdict.DIFFERENT


def test_a_place_that_one_run_does_not_come_to() -> None:
    mine, none = run(rank(line("new best"))), run(rank())
    assert "this run does not" in only(mine, none).sentence
    assert only(none, mine).verdict is Verdict.DIFFERENT
    assert only(mine, run(rank(), failure="line 3: no")).verdict is Verdict.NOT_REACHED


def test_what_the_runtime_says_is_not_the_scripts() -> None:
    assert (
        compare(run(rank()), run(rank(line("a word of the runtime", runtime=True))), SAME_LINES, True) == []
    )


def test_another_number_of_lines_is_different() -> None:
    check = only(run(rank(line("epoch 1"), line("epoch 2"))), run(rank(line("epoch 1"))))
    assert check.sentence == "printed once, 2 times in the original"


def test_inside_the_loop_the_mean_over_the_processes_shows_a_share() -> None:
    mine = run(rank(line("loss 0.3000", loop=True)))
    shares = [line("loss 0.2000", loop=True), line("loss 0.4000", loop=True)]
    check = only(mine, run(rank(shares[0]), rank(would=(shares[1],))))
    assert (check.verdict, check.sentence) == (Verdict.NOT_COMPARABLE, SHARE)
    wrong = only(mine, run(rank(shares[0]), rank(would=(line("loss 0.2100", loop=True),))))
    assert wrong.verdict is Verdict.DIFFERENT
    same = only(mine, run(rank(shares[0]), rank(would=(line("loss 0.2000", loop=True),))))
    assert same.verdict is Verdict.DIFFERENT


def test_outside_of_the_loop_the_mean_is_named_but_different() -> None:
    mine = run(rank(line("loss 0.3000")))
    check = only(mine, run(rank(line("loss 0.2000")), rank(would=(line("loss 0.4000"),))))
    assert check.verdict is Verdict.DIFFERENT
    assert check.sentence.endswith(": the mean over the processes would be the original's")


def test_inside_the_loop_a_loss_is_held_against_the_ranks_own() -> None:
    mine = run(rank(line("loss 0.3000", loop=True), losses=(0.5, 0.3)))
    other = [rank(line("loss 0.2000", loop=True), losses=(0.4, 0.2)), rank(losses=(0.6, 0.4))]
    assert only(mine, run(*other)).sentence == SHARE
    other[0] = rank(line("loss 0.1000", loop=True), losses=(0.4, 0.2))
    assert only(mine, run(*other)).verdict is Verdict.DIFFERENT
    mean = run(rank(line("mean 0.4000", loop=True), losses=(0.5, 0.3)))
    other[0] = rank(line("mean 0.3000", loop=True), losses=(0.4, 0.2))
    assert only(mean, run(*other)).sentence == SHARE


def test_inside_the_loop_what_nobody_can_check_is_named_so() -> None:
    check = only(run(rank(line("acc 0.7", loop=True))), run(rank(line("acc 0.9", loop=True)), rank()))
    assert (check.verdict, check.sentence) == (Verdict.NOT_COMPARABLE, NOT_CHECKED)
    alone = only(run(rank(line("acc 0.7", loop=True))), run(rank(line("acc 0.9", loop=True))))
    assert alone.verdict is Verdict.DIFFERENT


def test_a_time_is_not_compared_and_what_stands_beside_it_is() -> None:
    timed = run(rank(line("loss 0.5 in 1.20 s", times=[[12, 16]])))
    slower = run(rank(line("loss 0.5 in 12.35 s", times=[[12, 17]])))
    assert only(timed, slower, exact=True).verdict is Verdict.EQUAL
    worse = run(rank(line("loss 0.6 in 12.35 s", times=[[12, 17]])))
    assert only(timed, worse, exact=True).verdict is Verdict.DIFFERENT
    unmarked = run(rank(line("loss 0.5 in 12.35 s")))
    assert only(timed, unmarked).verdict is Verdict.DIFFERENT


def test_a_date_in_words_that_is_a_time_is_not_compared() -> None:
    first = run(rank(line("at Sat Nov 28 06:48:26 2026: 3", times=[[3, 27]])))
    second = run(rank(line("at Sun Nov 29 06:48:26 2026: 3", times=[[3, 27]])))
    assert only(first, second, exact=True).verdict is Verdict.EQUAL


def test_numbers_that_the_original_does_not_repeat_are_left_out() -> None:
    mine, again = run(rank(line("run 4711 loss 0.5"))), run(rank(line("run 4712 loss 0.5")))
    repeats = mine, again
    assert only(mine, run(rank(line("run 4713 loss 0.5"))), True, repeats).verdict is Verdict.EQUAL
    assert only(mine, run(rank(line("run 4713 loss 0.6"))), True, repeats).verdict is Verdict.DIFFERENT
    words = run(rank(line("host a")))
    check = only(words, run(rank(line("host b"))), True, (words, run(rank(line("host c")))))
    assert (check.verdict, check.sentence) == (Verdict.NOT_COMPARABLE, UNREPEATED)


def test_figures_of_a_share_are_known_to_whoever_reads_them_in_a_file() -> None:
    mine = run(rank(line("loss 0.30001", loop=True), line("end 0.9", 9), losses=(0.30001,)))
    other = run(rank(line("loss 0.20002", loop=True), line("end 0.8", 9), losses=(0.20002,)), rank())
    excuse = shares_shown(mine, other, SAME_LINES)
    assert excuse(0.30001, 0.20002) == excuse(0.3, 0.2) == SHARE
    assert not excuse(0.30001, 0.25)
    assert not excuse(0.9, 0.8)
    assert not shares_shown(mine, run(other.ranks[0]), SAME_LINES)(0.30001, 0.20002)


def test_coarse_figures_may_step_once_in_many() -> None:
    mine = [line(f"acc 0.{k}", n=k) for k in range(10, 60)]
    stepped = [*mine[:7], line("acc 0.18", n=17), *mine[8:]]
    assert only(run(rank(*mine)), run(rank(*stepped))).verdict is Verdict.ROUNDING
    single = only(run(rank(line("acc 0.17"))), run(rank(line("acc 0.18")), rank()))
    assert single.verdict is Verdict.DIFFERENT


def test_the_order_of_places_is_part_of_what_is_printed() -> None:
    mine = run(rank(line("a", 1), line("b", 2)))
    checks = compare(mine, run(rank(line("b", 2), line("a", 1))), SAME_LINES, True)
    assert [check.verdict for check in checks] == [Verdict.EQUAL, Verdict.EQUAL, Verdict.DIFFERENT]
    assert checks[-1].key == "order line"


def test_lines_of_the_converted_script_are_taken_to_the_originals() -> None:
    before = "import torch\nprint(loss)\n"
    after = "import torch\nfrom accelify.runtime import Accelerator\nif main:\n    print(loss)\n"
    lines = LineMap({Path(FILE): (before, after)})
    (check,) = compare(run(rank(line("1", 2))), run(rank(line("2", 4))), lines, False)
    assert (check.original, check.line, check.key) == ((FILE, 2), (FILE, 4), f"{FILE}:2")


def test_a_statement_that_was_rewritten_is_found_by_its_words() -> None:
    before, after = "print('loss', sum(losses))\n", "import x\nif main:\n    report(gathered, total)\n"
    lines = LineMap({Path(FILE): (before, after)})
    (check,) = compare(run(rank(line("loss 1.5", 1))), run(rank(line("loss 0.7", 3)), rank()), lines, False)
    assert check.sentence.startswith('printed "loss 0.7" where the original prints "loss 1.5"')


def test_logged_values_are_told_apart_by_tag_and_held_to_their_step() -> None:
    def scalar(tag: str, text: str, at: str) -> dict[str, Any]:
        return line(text, tag=tag, at=at)

    mine = run(rank(scalar("loss", "0.5", "1"), scalar("acc", "0.7", "1"), kind="scalar"))
    other = run(rank(scalar("loss", "0.5", "1"), scalar("acc", "0.7", "2"), kind="scalar"))
    checks = {check.key: check for check in compare(mine, other, SAME_LINES, False)}
    assert checks[f"{FILE}:5 scalar loss"].verdict is Verdict.EQUAL
    assert checks[f"{FILE}:5 scalar acc"].verdict is Verdict.DIFFERENT
    assert "for step 2, in the original for step 1" in checks[f"{FILE}:5 scalar acc"].sentence
    assert {check.aspect for check in checks.values()} == {"logged"}
