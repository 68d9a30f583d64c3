"""One verification from end to end: convert a copy, run the original and the copy, hold them against each other."""

from __future__ import annotations

import importlib.util
import math
import os
import re
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from accelify.obsolete_keywords import modernised
from accelify.verify.compare.losses import Comparison, Verdict, compare, structural, tolerances
from accelify.verify.nursery import Nursery, NurseryError
from accelify.verify.runs import Job, Run, execute

NO_ACCELERATE = "accelerate is not installed, and the copy is written for it: pip install accelerate."
NO_TORCH = "torch is not installed, and verify runs the script: pip install 'accelify[runtime]'."
# What torch says where a CUDA device is asked for and there is none; the last one where it is asked for by its number.
_NEEDS_CUDA = re.compile(r"CUDA|cuda|NVIDIA|nvidia|accelerator device")
# Accelerate's own order of samples, which the converter says.
_ORDER = re.compile(r": ACC60[12] ")


class VerifyError(Exception):
    """A verification that cannot be made, told in one sentence."""


@dataclass(frozen=True)
class Converted:
    """A copy to hold against the original.

    `files` are the original paths and the bytes that take their place. `refused` is the reason where there is no copy
    because the converter refused, `unchanged` the one where there was nothing to convert. `remaining` are places that
    still need a person, each as one line. `modernised` are those of the originals that Python does not parse any more,
    with `async=` under today's name: it is these that run as the original.
    """

    files: dict[Path, bytes] = field(default_factory=dict)
    refused: str = ""
    unchanged: str = ""
    remaining: tuple[str, ...] = ()
    modernised: dict[Path, bytes] = field(default_factory=dict)


@dataclass
class Report:
    """What a verification found. `original` is None where nothing was run."""

    script: Path
    converted: Converted
    original: Run | None = None
    comparisons: list[Comparison] = field(default_factory=list)
    tolerances: list[float] = field(default_factory=list)
    cuda_as_cpu: bool = False
    """The script asks for a CUDA device outright, and the CPU took its place in every run."""

    @property
    def exit_code(self) -> int:
        """0 when nothing is wrong, 1 when a run is different or failed, or the converter refused."""
        wrong = any(c.verdict in (Verdict.DIFFERENT, Verdict.FAILED) for c in self.comparisons)
        return int(wrong or bool(self.converted.refused))

    @property
    def within_first_epoch(self) -> bool:
        """Whether the runs were cut short before any loader ran out: what comes after an epoch was not seen."""
        return (
            self.original is not None
            and self.original.ranks[0].ended == "steps"
            and not self.original.ranks[0].passes
        )

    def to_json(self) -> dict[str, Any]:
        """The report as plain data, for `--json`."""
        original = self.original
        return {
            "script": str(self.script),
            "exit_code": self.exit_code,
            "refused": self.converted.refused or None,
            "unchanged": self.converted.unchanged or None,
            "remaining": list(self.converted.remaining),
            "original": None
            if original is None
            else {
                "steps": original.steps,
                "losses": original.losses,
                "learning_rates": [list(rates) for rates in original.rates],
                "reasons": original.ranks[0].reasons,
                "seconds": round(original.seconds, 3),
            },
            "within_first_epoch": self.within_first_epoch,
            "cuda_as_cpu": self.cuda_as_cpu,
            "tolerances": self.tolerances,
            "runs": [comparison.to_json() for comparison in self.comparisons],
        }


def convert_copy(script: Path, runtime: str = "accelify") -> Converted:
    """What `accelify convert --batch-size total` would write for a runtime, without writing it.

    Raises:
        SourceError: the script cannot be read or is not Python.
    """
    from accelify.conversion import ConvertOptions
    from accelify.convert import convert_paths

    files: dict[Path, bytes] = {}
    old: dict[Path, bytes] = {}
    remaining: list[str] = []
    own = Path(os.path.realpath(script))
    answer = Converted()
    for conversion in convert_paths([script], ConvertOptions(batch_size="total", runtime=runtime)):
        source = conversion.source
        if conversion.changed and source.path is not None:
            place = Path(os.path.realpath(source.path))
            files[place] = source.encode(conversion.new_text)
            if (runs_today := modernised(source.text)) != source.text:
                old[place] = source.encode(runs_today)
        remaining += [f"line {found.line}: {found.code} {found.message}" for found in conversion.remaining]
        if source.path is not None and Path(os.path.realpath(source.path)) != own:
            continue
        if conversion.status in ("refused", "failed"):
            answer = replace(answer, refused=conversion.reason or "the converter gave no reason")
        elif conversion.status == "unchanged":
            answer = replace(answer, unchanged=conversion.reason or "nothing in it needs a change")
    return replace(answer, files=files, remaining=tuple(remaining), modernised=old)


def verify(
    script: Path,
    arguments: tuple[str, ...] = (),
    *,
    converted: Converted | None = None,
    runtime: str = "accelify",
    steps: int = 20,
    processes: int = 2,
    gpu: bool = False,
    seed: int = 0,
    limit: float = 600.0,
    progress: Callable[[str], None] = lambda _: None,
) -> Report:
    """Run `script` and its converted copy and compare them. Nothing is written beside the script.

    Args:
        script: path of the plain script.
        arguments: its own command line.
        converted: the copy; made by the converter when None.
        runtime: what the copy is written for, `accelify` or `accelerate`.
        steps: optimizer steps of each run.
        processes: of the second run of the copy; 1 leaves that run out.
        gpu: run on the devices that are there instead of the CPU.
        seed: for the generators that the script does not seed itself.
        limit: seconds that the original may take.
        progress: told what is being run.

    Raises:
        VerifyError: torch is missing, or the original does not run or never calls backward.
        SourceError: the script cannot be read or is not Python.
    """
    if importlib.util.find_spec("torch") is None:
        raise VerifyError(NO_TORCH)
    if gpu:
        _check_devices(processes)
    if runtime == "accelerate" and importlib.util.find_spec("accelerate") is None:
        raise VerifyError(NO_ACCELERATE)
    converted = convert_copy(script, runtime) if converted is None else converted
    report = Report(script, converted)
    if converted.refused or converted.unchanged:
        return report
    threads = _threads(processes)
    with tempfile.TemporaryDirectory(prefix="accelify-weights-") as folder, Nursery(threads, gpu) as nursery:
        job = Job(
            script, arguments, steps=steps, seed=seed, threads=threads, limit=limit,
            save_weights=Path(folder) / "weights.pt", replaced=converted.modernised,
        )  # fmt: skip
        if runtime == "accelerate" and not gpu:
            job = replace(job, environment={"ACCELERATE_USE_CPU": "true"})
        try:
            nursery.ready()
            _Session(report, job, nursery, progress, gpu).run(processes)
        except NurseryError as error:
            raise VerifyError(f"The runs were given up: {error}") from None
    return report


class _Session:
    """The runs of one verification, in their order."""

    def __init__(
        self, report: Report, job: Job, nursery: Nursery, progress: Callable[[str], None], gpu: bool
    ) -> None:
        self.report = report
        self.gpu = gpu
        self.job = job
        self.nursery = nursery
        self.progress = progress
        self.unrepeatable = ""

    def run(self, processes: int) -> None:
        original = self._execute("the original on 1 process", self.job)
        if original.failure and not self.gpu and _NEEDS_CUDA.search(original.failure):
            self.job = replace(self.job, cuda_as_cpu=True)
            original = self._execute("the original with the CPU in place of CUDA", self.job)
            self.report.cuda_as_cpu = True
        _check(original, self.report.script)
        self.report.original, self.report.tolerances = original, tolerances(original)
        copy = replace(
            self.job,
            replaced=self.report.converted.files,
            label="converted",
            converted=True,
            save_weights=None,
            reference=self.job.save_weights,
            limit=min(self.job.limit, 60 + 20 * original.seconds),
        )
        one = self._execute("the copy on 1 process", copy)
        self.report.comparisons.append(self._one_process(original, one))
        if processes > 1:
            copy = replace(copy, processes=processes)
            several = self._execute(f"the copy on {processes} processes", copy)
            self.report.comparisons.append(self._several(original, several, copy))

    def _execute(self, what: str, job: Job) -> Run:
        self.progress(what)
        return execute(job, self.nursery)

    def _one_process(self, original: Run, run: Run) -> Comparison:
        """One process has to be identical; where it is not, the original may not repeat its own numbers."""
        comparison = compare(original, run)
        if comparison.verdict not in (Verdict.DIFFERENT, Verdict.ROUNDING):
            return comparison
        again = self._execute("the original once more", replace(self.job, save_weights=None))
        if not again.failure and not again.same_as(original):
            self.unrepeatable = (
                "two runs of the original itself differ: it depends on time, or on other entropy"
            )
            if comparison.verdict is Verdict.DIFFERENT:
                comparison.verdict, comparison.reason = Verdict.NOT_COMPARABLE, self.unrepeatable
        return comparison

    def _several(self, original: Run, run: Run, copy: Job) -> Comparison:
        """On several processes rounding may grow; how far is asked of the original, disturbed, where it matters."""
        comparison = compare(original, run)
        if self.unrepeatable and comparison.verdict is Verdict.DIFFERENT:
            comparison.verdict, comparison.reason = Verdict.NOT_COMPARABLE, self.unrepeatable
            return comparison
        comparison = self._with_control(comparison, original, self.job)
        if comparison.verdict is Verdict.NOT_COMPARABLE and original.ranks[0].reasons:
            self._without_chance(comparison, copy)
        order = [line for line in self.report.converted.remaining if _ORDER.search(line)]
        if comparison.verdict is Verdict.DIFFERENT and order and not structural(original, run):
            comparison.verdict, comparison.reason = Verdict.NOT_COMPARABLE, "; ".join(order)
        return comparison

    def _with_control(self, comparison: Comparison, original: Run, job: Job) -> Comparison:
        if comparison.verdict is not Verdict.DIFFERENT:
            return comparison
        disturbed = replace(job, save_weights=None, reference=job.save_weights, perturb=True)
        control = self._execute("the original with its gradients disturbed as by rounding", disturbed)
        return compare(original, comparison.run, control=control)

    def _without_chance(self, comparison: Comparison, copy: Job) -> None:
        """Compare once more with dropout, noise and batch statistics taken out of both runs alike."""
        assert self.job.save_weights is not None
        weights = self.job.save_weights.with_name("quiet.pt")
        job = replace(self.job, quiet=True, save_weights=weights)
        original = self._execute("the original without chance", job)
        if original.failure or not original.losses or not all(map(math.isfinite, original.losses)):
            return
        what = f"the copy without chance on {copy.processes} processes"
        run = self._execute(what, replace(copy, quiet=True, reference=weights))
        if run.failure:
            return
        comparison.quiet = quiet = self._with_control(compare(original, run), original, job)
        if quiet.verdict is Verdict.DIFFERENT:
            comparison.verdict = Verdict.DIFFERENT
            comparison.reason = f"also with chance taken out of both runs: {quiet.reason}"


def _check(original: Run, script: Path) -> None:
    if original.failure:
        raise VerifyError(f"{script} does not run before conversion: {original.failure}.")
    if not original.losses:
        raise VerifyError(f"{script} never calls backward, so there are no losses to compare.")


def _check_devices(processes: int) -> None:
    from accelify.runtime.launch.settings import count_devices

    found = count_devices()
    if found < processes:
        there = f"there {'is' if found == 1 else 'are'} {found or 'none'} here"
        better = f"give -n {found}" if found else "leave --gpu out"
        needed = f"{processes} CUDA device{'s' if processes > 1 else ''}"
        raise VerifyError(f"--gpu with {processes} processes needs {needed}, and {there}: {better}.")


def _threads(processes: int) -> int:
    """Threads of each process; the same in every run, since the order of a sum depends on it."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, cores // max(processes, 1))
