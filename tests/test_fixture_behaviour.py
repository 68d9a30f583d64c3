"""Every fixture is run before and after conversion: all that can be seen has to stay.

`verify` runs the plain script and the converted one on 1, 2 and 3 processes, to their ends, in both modes. A first
comment line `# comparable: no, WHY` in `before.py` says that several processes cannot give the original's losses, and
why; with chance taken out of both runs they do.
"""

from __future__ import annotations

import functools
import importlib.util
import re
from pathlib import Path

import pytest

from accelify.verify.compare.losses import Comparison
from accelify.verify.compare.verdict import Verdict
from accelify.verify.session import Report, verify

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


@functools.cache
def report_of(kind: str, mode: str) -> Report:
    for name in NEEDS.get(kind, ()):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed")
    script = FIXTURES / kind / "before.py"
    if kind == "project":
        script = FIXTURES / kind / "before" / "train.py"
    return verify(script, batch_size=mode, steps=100_000, processes=(2, 3), limit=300)


def explain(comparison: Comparison) -> str:
    wrong = [check.to_json() for check in comparison.checks if check.sentence]
    return f"{comparison.verdict}: {comparison.reason} {wrong}\n{comparison.run.output[-3000:]}"


def printed(output: str) -> list[str]:
    """What the script prints, without progress bars and the warnings of libraries."""
    lines = [line.strip() for line in re.split(r"[\r\n]+", output)]
    return [line for line in lines if line and not _BAR.search(line) and "Warning" not in line]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", KINDS)
def test_one_process_is_equal_in_all_that_can_be_seen(kind: str, mode: str) -> None:
    report = report_of(kind, mode)
    assert not report.converted.refused
    comparison = report.comparisons[0]
    assert comparison.run.processes == 1
    assert comparison.overall is Verdict.EQUAL, explain(comparison)
    assert report.original is not None
    assert printed(comparison.run.output) == printed(report.original.output)


@pytest.mark.parametrize("number", [1, 2], ids=["2", "3"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", KINDS)
def test_several_processes_are_equal(kind: str, mode: str, number: int) -> None:
    comparison = report_of(kind, mode).comparisons[number]
    assert comparison.run.processes == number + 1
    assert comparison.overall not in (Verdict.DIFFERENT, Verdict.FAILED), explain(comparison)
    aspects = comparison.aspects()
    for aspect in ("rates", "steps", "effects", "exit"):
        assert aspects.get(aspect, Verdict.EQUAL) in (Verdict.EQUAL, Verdict.NOT_REACHED), explain(comparison)
    if not_comparable(kind):
        assert comparison.verdict is Verdict.NOT_COMPARABLE, explain(comparison)
        assert comparison.quiet is not None
        comparison = comparison.quiet
    assert comparison.verdict in (Verdict.EQUAL, Verdict.ROUNDING), explain(comparison)
