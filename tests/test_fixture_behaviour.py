"""Every fixture is run before and after conversion: the numbers have to stay.

`verify` runs the plain script and the converted one on 1 and on 2 processes, to their ends. A first comment line
`# comparable: no, WHY` in `before.py` says that two processes cannot give the original's losses, and why.
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
NEEDS = {
    "progress_bar_and_writer": ("tqdm", "tensorboard"),
    "metrics_lists": ("numpy",),
    "lbfgs_closure": ("numpy",),
}

pytestmark = pytest.mark.distributed

_NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?")
_BAR = re.compile(r"\d+%\||it/s|s/it|\?it")
_EVALUATION = re.compile(r"\b(?:test|valid|val)\b", re.IGNORECASE)
_TRAINING = re.compile(r"\btrain\b|mean loss", re.IGNORECASE)


def not_comparable(kind: str) -> str:
    first = (FIXTURES / kind / "before.py").read_text().splitlines()[0]
    return first.removeprefix("# comparable: no, ") if first.startswith("# comparable: no, ") else ""


@functools.cache
def report_of(kind: str) -> Report:
    for name in NEEDS.get(kind, ()):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed")
    return verify(FIXTURES / kind / "before.py", steps=100_000, processes=2, limit=300)


def explain(comparison: Comparison) -> str:
    first = comparison.first.sentence() if comparison.first else ""
    return f"{comparison.verdict}: {comparison.reason} {first}\n{comparison.run.output[-3000:]}"


def printed(output: str) -> list[str]:
    """What the script prints, without progress bars and the warnings of libraries."""
    lines = [line.strip() for line in re.split(r"[\r\n]+", output)]
    return [line for line in lines if line and not _BAR.search(line) and "Warning" not in line]


@pytest.mark.parametrize("kind", KINDS)
def test_one_process_is_identical(kind: str) -> None:
    report = report_of(kind)
    assert not report.converted.refused
    comparison = report.comparisons[0]
    assert comparison.run.processes == 1
    assert comparison.verdict is Verdict.EQUAL, explain(comparison)
    assert comparison.same_weights
    assert comparison.same_rates


@pytest.mark.parametrize("kind", KINDS)
def test_one_process_prints_the_same(kind: str) -> None:
    report = report_of(kind)
    assert report.original is not None
    assert printed(report.comparisons[0].run.output) == printed(report.original.output)


@pytest.mark.parametrize("kind", KINDS)
def test_two_processes_are_equal(kind: str) -> None:
    report = report_of(kind)
    comparison = report.comparisons[1]
    assert comparison.run.processes == 2
    assert comparison.same_rates, explain(comparison)
    if not_comparable(kind):
        assert comparison.verdict is Verdict.NOT_COMPARABLE, explain(comparison)
    else:
        assert comparison.verdict in (Verdict.EQUAL, Verdict.ROUNDING), explain(comparison)


@pytest.mark.parametrize("kind", KINDS)
def test_two_processes_print_once_and_evaluate_alike(kind: str) -> None:
    """As many lines as the original's, and the same figures in those that tell of an evaluation."""
    report = report_of(kind)
    assert report.original is not None
    before, after = printed(report.original.output), printed(report.comparisons[1].run.output)
    assert len(after) == len(before), "\n".join(after)
    if not_comparable(kind):
        return
    evaluations = 0
    for a, b in zip(before, after, strict=True):
        # The mean over an epoch of losses that are means themselves is not exact where shares are uneven.
        tolerance = 2e-3 if _EVALUATION.search(a) else 0.05 if _TRAINING.search(a) else 0.0
        if not tolerance:
            continue
        evaluations += tolerance < 0.05
        assert _NUMBER.sub("#", a) == _NUMBER.sub("#", b)
        expected, found = [[float(n) for n in _NUMBER.findall(line)] for line in (a, b)]
        assert found == pytest.approx(expected, rel=tolerance, abs=tolerance), f"{a}\n{b}"
    if kind not in ("gan", "gradient_penalty", "regression_by_hand"):
        assert evaluations, "a fixture that evaluates prints it"
