"""The original and its copy as if on one GPU, on machines that have none: what differs there shows on no CPU.

A precision that a flag asks for, the scaling of losses, a device that is passed as text, a tensor left on the other
device: each is decided by `torch.cuda.is_available()` or refused by a GPU alone. See `verify.simulated_gpu`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from accelify.verify.compare import everything
from accelify.verify.compare.losses import Comparison
from accelify.verify.compare.verdict import Verdict
from accelify.verify.lines import LineMap
from accelify.verify.nursery import Nursery
from accelify.verify.runs import Job, Run, execute

_ON_GPU = {"ACCELIFY_USE_CPU": "", "ACCELERATE_USE_CPU": "", "CUDA_VISIBLE_DEVICES": "0"}


@dataclass(frozen=True)
class OnGpu:
    """What came of it: a comparison, or a sentence that says why there is none."""

    comparison: Comparison | None = None
    note: str = ""


def asked_for(texts: Iterable[str]) -> bool:
    """Whether a script, whose files before conversion are the texts, does anything about GPUs."""
    return any("cuda" in text for text in texts)


def compare(job: Job, copy: Job, lines: LineMap, nursery: Nursery) -> OnGpu:
    """Run both on one process with a simulated GPU and compare everything that can be seen, to the bit.

    Args:
        job: the original's run on the CPU.
        copy: the copy's.
        lines: which lines of the two correspond to each other.
        nursery: where processes come from; other threads may use it meanwhile.

    Raises:
        NurseryError: no process could be made.
    """
    assert job.save_weights is not None
    weights = job.save_weights.with_name("gpu.pt")
    job = replace(
        job, cuda_as_cpu=False, simulated_gpu=True, probes={}, save_weights=weights,
        environment={**job.environment, **_ON_GPU}
    )  # fmt: skip
    original = execute(job, nursery)
    if why := _not_comparable(original):
        return OnGpu(note=f"What happens on a GPU was not compared: on a simulated one {why}.")
    copy = replace(
        copy, cuda_as_cpu=False, simulated_gpu=True, probes={}, reference=weights,
        environment={**copy.environment, **_ON_GPU}, limit=min(copy.limit, 60 + 20 * original.seconds),
    )  # fmt: skip
    run = execute(copy, nursery)
    comparison = everything.compare(original, run, lines, exact=True)
    if comparison.overall is Verdict.DIFFERENT:
        again = execute(replace(job, save_weights=None), nursery)
        comparison = everything.compare(original, run, lines, exact=True, again=again)
    return OnGpu(comparison)


def _not_comparable(original: Run) -> str:
    if original.failure:
        return f"the original does not run ({original.failure})"
    return "" if original.losses else "the original never calls backward"
