"""One verification from end to end: convert a copy, run the original and the copy, compare them."""

from __future__ import annotations

import importlib.util
import math
import os
import re
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from accelify.installing import install_command
from accelify.verify import NO_TORCH, on_simulated_gpu
from accelify.verify.compare import decisions, everything, schedule
from accelify.verify.compare.losses import Comparison, rates, structural, tolerances
from accelify.verify.compare.verdict import WRONG, Verdict
from accelify.verify.converted import Converted, convert_copy
from accelify.verify.lines import LineMap
from accelify.verify.multiplied_counts import MultipliedCount, by_file, multiplied_counts
from accelify.verify.nursery import Nursery, NurseryError
from accelify.verify.on_simulated_gpu import OnGpu
from accelify.verify.probes.planning import Plan, plan
from accelify.verify.probes.settling import Outcome, Settled, by_devices, settle, worst
from accelify.verify.progress import Progress, silent
from accelify.verify.runs import Job, Run, execute
from accelify.verify.unseen import Unseen, unseen

NO_ACCELERATE = "accelerate is not installed, and the copy is written for it: `pip install accelerate`."
_ROUNDS = 100  # for as many more loaders of one line, as a fold makes each time
# torch's errors where a CUDA device is asked for and there is none; the last one where it is asked for by its number.
_NEEDS_CUDA = re.compile(r"CUDA|cuda|NVIDIA|nvidia|accelerator device")
_WANTS_ARGUMENTS = re.compile(
    r"arguments are required|^usage: |IndexError: list index out of range", re.MULTILINE
)


class VerifyError(Exception):
    """A verification that cannot be made; the message is one sentence."""


@dataclass
class Report:
    """What a verification found. `original` is None where nothing was run, `on_gpu` empty for a script for CPUs."""

    script: Path
    converted: Converted
    original: Run | None = None
    comparisons: list[Comparison] = field(default_factory=list)
    tolerances: list[float] = field(default_factory=list)
    cuda_as_cpu: bool = False
    """The script asks for a CUDA device outright, and the CPU took its place in every run."""
    on_gpu: OnGpu = field(default_factory=OnGpu)
    settled: list[Settled] = field(default_factory=list)
    """What became of the demands that are not proved."""
    unseen: Unseen | None = None
    """What comes after the first epoch, where the runs end within it."""
    counts: list[MultipliedCount] = field(default_factory=list)
    """Counts that the converted script multiplies by the number of processes; so does what it is compared with."""

    @property
    def exit_code(self) -> int:
        """0 where nothing is wrong, 1 where a run is different, failed or not divided, 2 where nothing was verified."""
        if not self.comparisons:
            return 2
        wrong = any(c.overall in WRONG for c in self.columns)
        return int(wrong or any(one.fails for one in self.settled))

    @property
    def columns(self) -> list[Comparison]:
        """The comparisons by number of processes, then the one on a simulated GPU, where there is one."""
        return [*self.comparisons, *filter(None, [self.on_gpu.comparison])]

    @property
    def runs(self) -> list[Run]:
        """The original's run and those of the converted script."""
        first = [self.original] if self.original is not None else []
        return [*first, *(comparison.run for comparison in self.comparisons)]

    @property
    def notes(self) -> list[str]:
        """What the sandbox has blocked, and why nothing was compared on a simulated GPU; each sentence once."""
        reported = [note for run in self.runs for note in run.notes]
        return list(dict.fromkeys([*reported, *filter(None, [self.on_gpu.note])]))

    def of(self, outcome: Outcome) -> list[Settled]:
        """The demands that came to this."""
        return [one for one in self.settled if one.outcome is outcome]

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
            "within_first_epoch": self.unseen is not None,
            "after_first_epoch": asdict(self.unseen) if self.unseen is not None else None,
            "cuda_as_cpu": self.cuda_as_cpu,
            "notes": self.notes,
            "tolerances": self.tolerances,
            "demands": {
                "not_proved": len(self.settled),
                **{outcome.replace(" ", "_"): len(self.of(outcome)) for outcome in Outcome},
                "settled": [one.to_json() for one in self.settled],
            },
            "runs": [comparison.to_json() for comparison in self.comparisons],
            "on_simulated_gpu": self.on_gpu.comparison.to_json() if self.on_gpu.comparison else None,
        }


def verify(
    script: Path,
    arguments: tuple[str, ...] = (),
    *,
    converted: Converted | None = None,
    runtime: str = "accelify",
    batch_size: str = "per-process",
    steps: int = 20,
    processes: int | tuple[int, ...] = 2,
    gpu: bool = False,
    seed: int = 0,
    limit: float = 600.0,
    allow_network: bool = False,
    module: str = "",
    progress: Progress = silent,
) -> Report:
    """Run `script` and its converted copy and compare them. Nothing outside the runs' folders is changed.

    Args:
        script: path of the plain script.
        arguments: the script's command line.
        converted: the copy; made by the converter when None.
        runtime: what the copy is written for, `accelify` or `accelerate`.
        batch_size: what the copy is converted with, `per-process` or `total`.
        steps: optimizer steps of each run.
        processes: numbers of processes for the runs of the copy besides the one on 1 process.
        gpu: run on the devices that are there instead of the CPU.
        seed: for the generators that the script does not seed itself.
        limit: seconds that the original may take.
        allow_network: let the runs reach the network.
        module: run this module, as `python -m` does, of which `script` is the file.
        progress: called with what is being run, and with its steps and losses as they come.

    Raises:
        VerifyError: torch is missing, or the original does not run or never calls backward.
        SourceError: the script cannot be read or is not Python.
    """
    if importlib.util.find_spec("torch") is None:
        raise VerifyError(f"{NO_TORCH}: {install_command('runtime')}.")
    counts = (processes,) if isinstance(processes, int) else processes
    most = max(counts, default=1)
    if gpu:
        _check_devices(most)
    if runtime == "accelerate" and importlib.util.find_spec("accelerate") is None:
        raise VerifyError(NO_ACCELERATE)
    converted = convert_copy(script, runtime, batch_size) if converted is None else converted
    report = Report(script, converted)
    if converted.refused or converted.unchanged:
        return report
    threads = _threads(most)
    with tempfile.TemporaryDirectory(prefix="accelify-weights-") as folder, Nursery(threads, gpu) as nursery:
        job = Job(
            script, arguments, steps=steps, seed=seed, threads=threads, limit=limit,
            save_weights=Path(folder) / "weights.pt", replaced=converted.originals,
            allow_network=allow_network, module=module,
        )  # fmt: skip
        if runtime == "accelerate" and not gpu:
            job = replace(job, environment={"ACCELERATE_USE_CPU": "true"})
        try:
            progress("importing torch")
            lines = converted.lines()
            # While torch is imported.
            demands = plan(script, converted, lines) if most > 1 else Plan()
            nursery.ready()
            Session(report, job, nursery, runtime, progress, lines, demands).run(counts)
        except NurseryError as error:
            raise VerifyError(f"The runs were given up: {error}") from None
    return report


class Session:
    """The runs of one verification, in their order.

    Args:
        report: filled in as the runs end.
        job: the original's run.
        nursery: where processes come from.
        runtime: what the copy is written for.
        progress: see `verify`.
        lines: which lines of the two scripts correspond to each other.
        demands: what is not proved of the copy.
    """

    def __init__(
        self,
        report: Report,
        job: Job,
        nursery: Nursery,
        runtime: str,
        progress: Progress,
        lines: LineMap,
        demands: Plan,
    ) -> None:
        self.report = report
        report.counts = multiplied_counts(report.converted.texts())
        self.job = replace(job, probes=demands.original)
        self.nursery = nursery
        self.progress = progress
        self.lines = lines
        self.demands = demands
        self.copy = replace(
            job,
            probes=demands.copy,
            shares=tuple(sorted(demands.shares)),
            replaced=report.converted.files,
            label="converted",
            converted=True,
            runtime=runtime,
            save_weights=None,
            reference=job.save_weights,
        )
        self.repeated: dict[Path | None, Run] = {}
        self.references: dict[int, tuple[Job, Run]] = {}

    def run(self, processes: tuple[int, ...]) -> None:
        """Make all runs and fill in the report; those on a simulated GPU run in parallel, as most use one core."""
        with ThreadPoolExecutor(1) as beside:
            converted = self.report.converted
            before = [text for text, _ in converted.texts().values()]
            on_gpu = None
            if (
                not self.nursery.gpu
                and self.copy.runtime == "accelify"
                and on_simulated_gpu.asked_for(before)
            ):
                on_gpu = beside.submit(
                    on_simulated_gpu.compare, self.job, self.copy, self.lines, self.nursery
                )
            self._on_cpus(processes)
            if on_gpu is not None:
                if not on_gpu.done():
                    self.progress("both on a simulated GPU")
                self.report.on_gpu = on_gpu.result()
            self.report.settled = by_devices(self.report.settled, self.report.on_gpu.comparison)

    def _on_cpus(self, processes: tuple[int, ...]) -> None:
        original = self._execute("the original on 1 process", self.job)
        if original.failure and not self.nursery.gpu and _NEEDS_CUDA.search(original.failure):
            self.job = replace(self.job, cuda_as_cpu=True)
            self.copy = replace(self.copy, cuda_as_cpu=True)
            original = self._execute("the original with the CPU in place of CUDA", self.job)
            self.report.cuda_as_cpu = True
        _check(original, self.report.script)
        self.report.original, self.report.tolerances = original, tolerances(original)
        self.copy = replace(self.copy, limit=min(self.job.limit, 60 + 20 * original.seconds))
        one = self._execute("the converted script on 1 process", self.copy)
        comparison = self._compare(original, one, self.job)
        self._where_it_parts(comparison, self.job, self.copy)
        self.report.comparisons.append(comparison)
        self.report.unseen = unseen(self.demands.sinks, original, one, self.lines)
        settled = []
        for count in processes:
            if count > 1:
                comparison, job = self._several(original, one, count)
                self.report.comparisons.append(comparison)
                settled.append(self._settle(comparison, job, original, one))
        self.report.settled = worst(settled)

    def _execute(self, what: str, job: Job) -> Run:
        self.progress(what)
        return execute(job, self.nursery, self.progress)

    def _rates_by_data(
        self, original: Run, reference: Run, run: Run, count: int
    ) -> list[schedule.Rates] | None:
        """What the rates of a run should be by the data, where they are not as in its reference or count rounds."""
        if run.failure or not (rates(reference, run) or schedule.counts_rounds(original, run)):
            return None
        if original.ranks[0].ended == "steps":
            limit, steps = count * self.job.limit, count * self.job.steps
            longer = replace(self.job, steps=steps, limit=limit, save_weights=None)
            original = self._execute("the original for as many samples", longer)
        return schedule.rates_by_data(original, run, self.lines, count)

    def _compare(self, reference: Run, run: Run, job: Job) -> Comparison:
        """Compare a run with its reference, with further runs of the original where something differs.

        Once more without a change: the original may not repeat its numbers. And with its gradients disturbed as by
        rounding, which says how far rounding alone carries.
        """
        exact = run.processes == 1
        comparison = everything.compare(reference, run, self.lines, exact)
        if comparison.overall is not Verdict.DIFFERENT:
            return comparison
        again = self._again(job)
        comparison = everything.compare(reference, run, self.lines, exact, again=again)
        files = any(c.aspect == "files" and c.verdict is Verdict.DIFFERENT for c in comparison.checks)
        if exact or (comparison.verdict is not Verdict.DIFFERENT and not files):
            return comparison
        disturbed = replace(job, save_weights=None, reference=job.save_weights, perturb=True)
        control = self._execute("the original with its gradients disturbed as by rounding", disturbed)
        return everything.compare(reference, run, self.lines, exact, again=again, control=control)

    def _settle(self, comparison: Comparison, job: Job, original: Run, one: Run) -> list[Settled]:
        """Settle what is not proved; where only a value shows an error, the original has to repeat the value."""
        others = [original, *([one] if comparison.reference is original else [])]
        found = settle(self.demands.demands, comparison, others)
        if not any(settled.fails for settled in found):
            return found
        return settle(self.demands.demands, comparison, others, self._again(job))

    def _again(self, job: Job) -> Run:
        # Each job of the original has different weights.
        if job.save_weights not in self.repeated:
            self.repeated[job.save_weights] = self._execute(
                "the original once more", replace(job, save_weights=None)
            )
        return self.repeated[job.save_weights]

    def _several(self, original: Run, one: Run, count: int) -> tuple[Comparison, Job]:
        """Compare the copy on several processes with the original, in batches as large as theirs together.

        Returns the comparison and the reference's job.
        """
        name = f"{count} processes"
        job, reference = self._reference(original, one, count)
        copy = replace(self.copy, processes=count, reference=job.save_weights)
        run = self._execute(f"the converted script on {name}", copy)
        if reference.failure or not reference.losses:
            return self._without_reference(original, reference, run), self.job
        if run.repeated and reference.losses != original.losses:
            # Nothing is sharded: each process does what the original does, in batches of the original's size. Where
            # larger ones change nothing in training, they are those of another loader, which is sharded.
            job, reference = self.job, original
        expected = None if reference is original else self._rates_by_data(original, reference, run, count)
        if imposed := schedule.settings(expected, run, self.lines):
            assert job.save_weights is not None
            job = replace(job, schedule=imposed, save_weights=job.save_weights.with_name(f"rates{count}.pt"))
            reference = self._execute(f"the original with {count} batches in one, at its own rates", job)
            copy = replace(copy, reference=job.save_weights)
            run = self._execute(f"the converted script on {name}", copy)
        comparison = self._compare(reference, run, job)
        if reference is not original and comparison.overall is Verdict.DIFFERENT:
            everything.accept(comparison, everything.compare(original, run, self.lines, exact=False))
        if reference is not original:
            schedule.name_rates(comparison.checks, expected, run, self.lines)
            comparison.checks += decisions.by_rounds(original, run, self.lines)
        reasons = reference.ranks[0].reasons
        # Training may be the same where only what is shown depends on the draws.
        shown = comparison.overall is not comparison.verdict and "evaluation" in reasons
        if reasons and (comparison.verdict is Verdict.NOT_COMPARABLE or (shown and not comparison.reason)):
            self._without_chance(comparison, job, copy)
        self._where_it_parts(comparison, job, copy)
        order = self.report.converted.order
        if comparison.verdict is Verdict.DIFFERENT and order and not structural(reference, run):
            comparison.verdict, comparison.reason = Verdict.NOT_COMPARABLE, "; ".join(order)
            everything.downgrade(comparison, comparison.differing(), comparison.reason)
        return comparison, job

    def _without_reference(self, original: Run, larger: Run, run: Run) -> Comparison:
        """What a run shows where the original cannot run in batches as large: whether it runs to its end."""
        why = (
            f"the original does not run with batches {run.processes} times as large, which is what {run.processes} "
            f"processes see ({larger.failure or 'it never calls backward'}): give --batch-size total to compare with "
            "the script's own batches"
        )
        comparison = everything.compare(original, run, self.lines, exact=False)
        everything.downgrade(comparison, comparison.differing(), why)
        if comparison.verdict is not Verdict.FAILED:
            comparison.verdict, comparison.reason = Verdict.NOT_COMPARABLE, why
        return comparison

    def _reference(self, original: Run, one: Run, count: int) -> tuple[Job, Run]:
        """The original with batches as large as `count` processes have together; itself where none is larger.

        Its run may have failed: a script may want batches of one size.
        """
        if count in self.references:
            return self.references[count]
        events = one.ranks[0].events
        made = Counter(tuple(event["key"][:2]) for event in events.get("made_loader", ()))
        scaled = []
        for event in events.get("prepared_loader", ()):
            file, line, number = event["key"]
            site = self.lines.original((file, line))
            if site is not None and not event["split"]:
                # Larger batches reach further: what is made there later is as what was made there.
                scaled += [(*site, number + again * made[file, line]) for again in range(_ROUNDS)]
        job, run = self.job, original
        if scaled:
            assert self.job.save_weights is not None
            weights = self.job.save_weights.with_name(f"weights{count}.pt")
            counts = by_file(self.report.counts)
            job = replace(self.job, scaled=tuple(scaled), factor=count, counts=counts, save_weights=weights)
            run = self._execute(f"the original with {count} batches in one", job)
            while run.failure and (
                apart := {tuple(e["key"]) for e in run.ranks[0].events.get("not_merged", ())}
            ):
                # Samples that do not fit into one batch; such a loader goes on with its batches as they are.
                job = replace(job, scaled=tuple(key for key in job.scaled if key not in apart))
                run = self._execute(f"the original with {count} batches in one", job)
        self.references[count] = job, run
        return job, run

    def _where_it_parts(self, comparison: Comparison, job: Job, copy: Job) -> None:
        """Name the first weights, output, loss or gradient that differs, where losses or weights do."""
        wrong = (check for check in comparison.checks if check.verdict is Verdict.DIFFERENT)
        check = next((check for check in wrong if check.aspect in ("losses", "weights")), None)
        if check is None or comparison.verdict is not Verdict.DIFFERENT or job.save_weights is None:
            return
        number = comparison.first.number if comparison.first else len(comparison.run.losses)
        trace = job.save_weights.with_name("trace.pt")
        wanted = tuple(range(max(1, number - 1), number + 1))
        quiet = comparison.quiet is not None
        reference = self._execute(
            "the original, step by step",
            replace(job, save_weights=None, trace=wanted, save_trace=trace, quiet=quiet),
        )
        if reference.failure or not trace.exists():
            return
        allowed = comparison.allowed or tolerances(reference)
        traced = replace(
            copy, reference=None, trace=wanted, reference_trace=trace, quiet=quiet,
            tolerance=allowed[min(number, len(allowed)) - 1],
        )  # fmt: skip
        run = self._execute("the converted script, step by step", traced)
        for found in run.ranks[0].events.get("parted", ()):
            if call := found["call"]:
                before = ", the one before that loss," if check.aspect == "losses" and call < number else ""
                check.sentence += f". It parts here: at call {call} of backward{before} {found['sentence']}"

    def _without_chance(self, comparison: Comparison, job: Job, copy: Job) -> None:
        """Compare again with dropout, noise and batch statistics taken out of both runs alike."""
        assert job.save_weights is not None
        weights = job.save_weights.with_name("quiet.pt")
        job = replace(job, quiet=True, save_weights=weights)
        original = self._execute("the original without chance", job)
        if original.failure or not original.losses or not all(map(math.isfinite, original.losses)):
            self._leave_samples(comparison)
            return
        what = f"the converted script without chance on {copy.processes} processes"
        run = self._execute(what, replace(copy, quiet=True, reference=weights))
        if run.failure:
            self._leave_samples(comparison)
            return
        comparison.quiet = quiet = self._compare(original, run, job)
        everything.take_over(comparison, quiet)
        if quiet.verdict is Verdict.DIFFERENT:
            comparison.verdict = Verdict.DIFFERENT
            comparison.reason = f"also with chance taken out of both runs: {quiet.reason}"

    def _leave_samples(self, comparison: Comparison) -> None:
        """Other draws are followed by another order: what could not be compared without them is not different."""
        everything.downgrade(
            comparison, {k for k in comparison.differing() if k[0] == "samples"}, comparison.reason
        )


def _check(original: Run, script: Path) -> None:
    if original.failure:
        hint = ""
        if _WANTS_ARGUMENTS.search(original.failure + original.output):
            hint = f" Its arguments go after --, as in `accelify verify {script} -- ARGUMENTS`."
        raise VerifyError(f"{script} does not run before conversion: {original.failure}.{hint}")
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
