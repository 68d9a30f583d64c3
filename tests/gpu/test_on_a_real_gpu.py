"""The fixtures and the scripts of the simulated GPU on a real one: `verify --gpu` runs each before and after.

Losses, learning rates and weights of the converted script are the original's to the bit, where the
original computes on the GPU, too.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from accelify.verify.compare.losses import Comparison
from accelify.verify.compare.verdict import Verdict
from accelify.verify.session import verify
from tests.gpu.support import DEVICE_ERROR, FIXED, FIXTURES, KINDS, is_said, script_of
from tests.test_fixture_behaviour import printed

pytestmark = [pytest.mark.gpu, pytest.mark.distributed]

# Some of what the original computes on the CPU, the converted script computes on the GPU.
COMPUTED_ELSEWHERE = {"moved_in_the_end", "parts_on_the_cpu"}


def on_the_gpu(script: Path) -> tuple[Comparison, str]:
    """How the converted script compares on one GPU, and what the original prints."""
    report = verify(script, steps=100_000, processes=1, gpu=True, limit=300)
    assert not report.converted.refused
    assert report.original is not None, report.converted.unchanged
    assert not report.cuda_as_cpu
    (comparison,) = report.comparisons
    return comparison, report.original.output


def explain(comparison: Comparison) -> str:
    first = comparison.first.sentence() if comparison.first else ""
    return f"{comparison.verdict}: {comparison.reason} {first}\n{comparison.run.output[-3000:]}"


@pytest.mark.parametrize("kind", [kind for kind in FIXED if not kind.startswith("ddp_")])
def test_fixture(kind: str) -> None:
    comparison, before = on_the_gpu(FIXTURES / kind / "before.py")
    assert comparison.verdict is Verdict.EQUAL, explain(comparison)
    assert comparison.same_weights
    assert comparison.same_rates
    # The Accelerator's device has no number on one process.
    assert printed(comparison.run.output.replace("cuda:0", "cuda")) == printed(
        before.replace("cuda:0", "cuda")
    )


@pytest.mark.parametrize("kind", KINDS)
def test_script(kind: str) -> None:
    comparison, _ = on_the_gpu(script_of(kind))
    if is_said(kind):
        assert comparison.verdict is Verdict.FAILED
        assert DEVICE_ERROR.search(comparison.reason + comparison.run.output)
        return
    expected = Verdict.ROUNDING if kind in COMPUTED_ELSEWHERE else Verdict.EQUAL
    assert comparison.verdict is expected, explain(comparison)
    assert comparison.same_rates
