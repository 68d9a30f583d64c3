"""Every fixture is run before and after conversion: all that can be seen has to stay.

`verify` runs the plain script and the converted one on 1, 2 and 3 processes, to their ends, in both modes, and on a
simulated GPU in one: on one process the modes are the same. A first
comment line `# comparable: no, WHY` in `before.py` says that several processes cannot give the original's losses, and
why; with chance taken out of both runs they do.
"""

from __future__ import annotations

import importlib.util
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from accelify.verify import on_simulated_gpu
from accelify.verify.compare.losses import Comparison
from accelify.verify.compare.verdict import Verdict
from accelify.verify.on_simulated_gpu import OnGpu
from accelify.verify.session import Report, verify
from tests.gpu.support import WITHOUT_GPU
from tests.verify.shared_nursery import SharedNursery, installed

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures"
# Scripts that distribute themselves have no plain original; tests/distributed/test_replace_ddp.py compares them.
KINDS = sorted(
    path.parent.name for path in FIXTURES.glob("*/before.py") if not path.parent.name.startswith("ddp_")
)
KINDS.append("project")
MODES = ["per-process", "total"]
NEEDS = {
    "progress_bar_and_writer": ("tqdm", "tensorboard"),
    "metrics_lists": ("numpy",),
    "lbfgs_closure": ("numpy",),
}

pytestmark = pytest.mark.distributed

_BAR = re.compile(r"\d+%\||it/s|s/it|\?it")


def not_comparable(kind: str) -> str:
    if kind == "project":
        return ""
    first = (FIXTURES / kind / "before.py").read_text().splitlines()[0]
    return first.removeprefix("# comparable: no, ") if first.startswith("# comparable: no, ") else ""


@dataclass(frozen=True)
class Case:
    """A fixture and what its verification found."""

    kind: str
    mode: str
    report: Report


@pytest.fixture(
    scope="module", params=[(kind, mode) for kind in KINDS for mode in MODES], ids=lambda both: "-".join(both)
)
def case(request: pytest.FixtureRequest, nursery: SharedNursery) -> Case:
    kind, mode = request.param
    for name in NEEDS.get(kind, ()):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed")
    script = FIXTURES / kind / "before.py"
    if kind == "project":
        script = FIXTURES / kind / "before" / "train.py"
    with installed(nursery), pytest.MonkeyPatch.context() as patch:
        if mode == "total":
            patch.setattr(on_simulated_gpu, "asked_for", lambda _: False)
        report = verify(script, batch_size=mode, steps=100_000, processes=(2, 3), limit=300)
    return Case(kind, mode, report)


def explain(comparison: Comparison) -> str:
    wrong = [check.to_json() for check in comparison.checks if check.sentence]
    return f"{comparison.verdict}: {comparison.reason} {wrong}\n{comparison.run.output[-3000:]}"


def printed(output: str) -> list[str]:
    """What the script prints, without progress bars and the warnings of libraries."""
    lines = [line.strip() for line in re.split(r"[\r\n]+", output)]
    return [line for line in lines if line and not _BAR.search(line) and "Warning" not in line]


def test_one_process_is_equal_in_all_that_can_be_seen(case: Case) -> None:
    report = case.report
    assert not report.converted.refused
    comparison = report.comparisons[0]
    assert comparison.run.processes == 1
    assert comparison.overall is Verdict.EQUAL, explain(comparison)
    assert report.original is not None
    assert printed(comparison.run.output) == printed(report.original.output)


def test_a_simulated_gpu_sees_the_same(case: Case) -> None:
    if case.mode == "total" or case.kind in WITHOUT_GPU:
        assert case.report.on_gpu == OnGpu()
        return
    comparison = case.report.on_gpu.comparison
    assert comparison is not None, case.report.on_gpu.note
    assert comparison.overall is Verdict.EQUAL, explain(comparison)


@pytest.mark.parametrize("number", [1, 2], ids=["2", "3"])
def test_several_processes_are_equal(case: Case, number: int) -> None:
    comparison = case.report.comparisons[number]
    assert comparison.run.processes == number + 1
    assert comparison.overall not in (Verdict.DIFFERENT, Verdict.FAILED), explain(comparison)
    aspects = comparison.aspects()
    for aspect in ("rates", "steps", "effects", "exit"):
        assert aspects.get(aspect, Verdict.EQUAL) in (Verdict.EQUAL, Verdict.NOT_REACHED), explain(comparison)
    if not_comparable(case.kind):
        assert comparison.verdict is Verdict.NOT_COMPARABLE, explain(comparison)
        assert comparison.quiet is not None
        comparison = comparison.quiet
    assert comparison.verdict in (Verdict.EQUAL, Verdict.ROUNDING), explain(comparison)
