"""Demands that the engine cannot prove, settled by the runs: from scripts to verdicts."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from accelify.verify import show
from accelify.verify.compare.verdict import Verdict
from accelify.verify.page import page
from accelify.verify.probes.settling import Outcome, Settled
from accelify.verify.session import Report

from . import scripts

pytestmark = pytest.mark.distributed
VerifyPair = Callable[..., Report]
# A logger that nothing but the table below knows, and whose values no other comparison sees.
MODELS = '[tool.accelify.models]\n"sys.audit" = "none effect=tracker.log content=*"\n'
IMPORTS = "import _thread\nimport os\nimport pathlib\nimport sys\nimport numpy as np\n"
LOOP = """\
main = os.environ.get("RANK", "0") == "0"
for epoch in range(2):
    seen = []
    for x, y in loader:
        opt.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        opt.step()
        seen.append({value})
{end}"""
LOSSES, ONES = "loss.item() ** 2", "float((loss > 0).item())"
AUDIT = '    sys.audit("median", np.median(seen))\n'


def pair(end: str, end_of_copy: str, value: str = LOSSES) -> tuple[str, str]:
    """A script that does something with a list of figures after each epoch, and what a converter made of it."""
    original = IMPORTS + scripts.plain(loop=LOOP.format(value=value, end=end))
    copy = IMPORTS + scripts.converted(loop=LOOP.format(value=value, end=end_of_copy))
    return original, copy.replace("split_batches=True", "cpu=True")


def guarded(text: str, guard: str = "accelerator.is_main_process") -> str:
    return f"    if {guard}:\n    {text}"


def of(report: Report, demand: str) -> list[Settled]:
    return [one for one in report.settled if one.demand.demand == demand]


@pytest.fixture
def audited(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(MODELS)


@pytest.mark.usefixtures("audited")
def test_a_figure_that_is_the_originals_is_only_counted(verify_pair: VerifyPair) -> None:
    report = verify_pair(*pair(AUDIT, guarded(AUDIT), ONES), steps=8)
    (settled,) = report.settled
    assert (settled.outcome, settled.demand.demand) == (Outcome.HELD, "content")
    assert report.exit_code == 0
    assert list(show.demands(report)) == ["1 demand not proved or only assumed: 1 held"]


@pytest.mark.usefixtures("audited")
def test_a_figure_that_nobody_else_compares_is_violated_with_its_values(verify_pair: VerifyPair) -> None:
    report = verify_pair(*pair(AUDIT, guarded(AUDIT)), steps=8)
    assert all(c.overall in (Verdict.EQUAL, Verdict.ROUNDING) for c in report.comparisons)
    (settled,) = report.settled
    assert settled.outcome is Outcome.VIOLATED
    assert settled.fails
    assert report.exit_code == 1
    head, line = show.demands(report)
    assert head == "1 demand not proved or only assumed: 1 violated"
    where = report.converted.texts()[Path(settled.demand.site[0])][1].splitlines()
    assert where[settled.demand.line - 1].strip() == AUDIT.strip()
    on_disk = report.converted.lines().original((settled.demand.site[0], settled.demand.line))
    assert on_disk is not None
    assert on_disk[1] < settled.demand.line
    assert (
        f"train.py line {on_disk[1]}: logged to a tracker: not what it would be on a single process" in line
    )
    values = settled.values
    assert values.startswith("rank 0 ")
    assert ", in the original " in values
    assert values.endswith("(the 1st of 2)")
    plain = json.loads(json.dumps(report.to_json()))["demands"]
    assert (plain["not_proved"], plain["violated"], plain["held"], plain["not_reached"]) == (1, 1, 0, 0)
    assert plain["settled"][0]["values"] == values
    assert plain["settled"][0]["line"] == settled.demand.line
    assert values in page(report)


def test_a_place_that_no_rank_comes_to_is_not_reached(verify_pair: VerifyPair) -> None:
    text = "    if len(sys.argv) > 5:\n        print(np.median(seen))\n"
    report = verify_pair(*pair(text, text), steps=8)
    assert {one.outcome for one in report.settled} == {Outcome.NOT_REACHED}
    assert {one.demand.demand for one in report.settled} == {"content", "once"}
    assert report.exit_code == 0


def test_an_effect_that_one_rank_does_holds_and_one_that_all_do_does_not(verify_pair: VerifyPair) -> None:
    write = '    pathlib.Path(f"log{epoch}.txt").write_text("done")\n'
    held = verify_pair(*pair(write, guarded(write, "main")), steps=8)
    assert [one.outcome for one in of(held, "once")] == [Outcome.HELD]
    assert held.exit_code == 0
    wrong = verify_pair(*pair(write, write), steps=8)
    (settled,) = of(wrong, "once")
    assert (settled.outcome, settled.values) == (Outcome.VIOLATED, "done by ranks 0 and 1")
    assert not settled.fails, "the comparison of side effects sees it"
    assert wrong.exit_code == 1


def test_a_path_that_differs_between_ranks_is_violated(verify_pair: VerifyPair) -> None:
    text = '    pathlib.Path(f"log{np.median(seen):.4f}.txt").write_text("done")\n'
    report = verify_pair(*pair(text, text), steps=8)
    (settled,) = of(report, "path")
    assert settled.outcome is Outcome.VIOLATED
    assert 'rank 0 "log' in settled.values
    assert 'rank 1 "log' in settled.values


def test_ranks_that_all_come_to_a_collective_hold_its_demand(verify_pair: VerifyPair) -> None:
    wait = "        accelerator.wait_for_everyone()\n"
    test = "    if np.median(seen) > {}:\n"
    held = verify_pair(*pair(test.format(-1) + "        pass\n", test.format(-1) + wait), steps=8)
    assert [one.outcome for one in of(held, "all ranks")] == [Outcome.HELD]
    assert held.exit_code == 0


def test_an_assumption_about_a_function_is_looked_at(verify_pair: VerifyPair) -> None:
    text = "    number = _thread.get_native_id()\n    flag = _thread.TIMEOUT_MAX\n"
    report = verify_pair(*pair(text, text), steps=8)
    (settled,) = of(report, "result")
    assert settled.outcome is Outcome.VIOLATED
    assert settled.demand.sentence == "_thread.get_native_id gives the same on every rank"
    assert "rank 0 " in settled.values
    assert "rank 1 " in settled.values
    assert report.exit_code == 0, "nothing that others can see comes of it"


def test_a_loss_that_is_only_assumed_is_settled_by_the_losses(verify_pair: VerifyPair) -> None:
    loop = scripts.LOOP.replace("F.mse_loss(model(x), y)", "_functools.reduce(F.mse_loss, [model(x), y])")
    texts = ["import _functools\n" + text for text in scripts.pair(loop=loop)]
    report = verify_pair(texts[0], texts[1].replace("split_batches=True", "cpu=True"), steps=6)
    (settled,) = of(report, "loss")
    assert settled.outcome is Outcome.HELD
    wrong = texts[1].replace("split_batches=True", "cpu=True").replace("backward(loss)", "backward(2 * loss)")
    report = verify_pair(texts[0], wrong, steps=6)
    (settled,) = of(report, "loss")
    assert settled.outcome is Outcome.VIOLATED
    assert "together" in settled.values
    assert report.exit_code == 1


def test_what_is_proved_leaves_no_section(verify_pair: VerifyPair) -> None:
    loop = scripts.LOOP + '    accelerator.print("epoch", epoch)\n'
    report = verify_pair(
        scripts.plain(loop=loop.replace("accelerator.", "")), scripts.converted(loop=loop), steps=6
    )
    assert report.settled == []
    assert list(show.demands(report)) == []


def test_ranks_that_leave_a_loop_together_hold_and_a_loop_that_nobody_leaves_is_not_reached(
    verify_pair: VerifyPair,
) -> None:
    leave = "    if np.median(seen) > {}:\n        break\n"
    held = verify_pair(*pair(leave.format(-1), leave.format(-1)), steps=8)
    assert [one.outcome for one in of(held, "all ranks") if one.demand.sink == "leave"] == [Outcome.HELD]
    stays = verify_pair(*pair(leave.format(1e9), leave.format(1e9)), steps=8)
    assert [one.outcome for one in of(stays, "all ranks") if one.demand.sink == "leave"] == [
        Outcome.NOT_REACHED
    ]
