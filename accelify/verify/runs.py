"""Runs of a script in a sandbox: starting the processes, waiting for them, and reading what they recorded."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from accelify.runtime.launch.port import reserved_port
from accelify.verify.events import RankRecord, mean_loss, read_rank, same, same_end
from accelify.verify.lines import in_words
from accelify.verify.nursery import Nursery, NurseryError, Started
from accelify.verify.observe.multiplied import Extent
from accelify.verify.progress import News, Progress, silent
from accelify.verify.sandbox.changes import Change
from accelify.verify.sandbox.network import offline
from accelify.verify.sandbox.places import InMirror, InNamespaces, Place
from accelify.verify.sandbox.scratch import Scratch

GRACE = 2.0
"""Seconds that the other ranks get to end by themselves once one has failed."""


@dataclass(frozen=True)
class Job:
    """What to run.

    Args:
        script: the script as the user named it.
        arguments: its command line.
        replaced: original path to the bytes that take its place; the converted files, for a copy.
        label: how the table names the run.
        processes: how many.
        steps: optimizer steps after which it ends.
        converted: whether it speaks to accelify's runtime.
        seed: of all generators, where the script sets none.
        limit: seconds after which the run is stopped.
        perturb: disturb gradients by as much as rounding.
        quiet: take chance out of the training step.
        cuda_as_cpu: use the CPU in place of CUDA devices that the script asks for outright.
        simulated_gpu: run as if on a GPU; see `verify.simulated_gpu`.
        environment: variables beside those of the runs.
        runtime: what a converted script imports, `accelify` or `accelerate`; empty for a plain one.
        trace: calls of backward, from 1, that are recorded in detail; `save_trace` is where, or `reference_trace` has
            those of the run to compare with, whose losses rounding may move by `tolerance` of their size.
        schedule: what schedulers set after each call at some places; see `observe.schedules`.
        module: the script is run as `python -m` runs this module.
        scaled: loaders (file, line, how manyth made there) of which `factor` batches are made one.
        counts: expressions by file that are multiplied by `factor`; see `multiplied_counts`.
        probes: where to look at values, by real path of the file; see `probes.inserting`.
        shares: statements (file, line) that show figures of the main process's share, as `convert` announces.
        allow_network: leave the network as it is.
        save_weights: file that takes the final weights, really.
        reference: file of another run's final weights, to measure the distance to.
    """

    script: Path
    arguments: tuple[str, ...] = ()
    replaced: dict[Path, bytes] = field(default_factory=dict)
    label: str = "original"
    processes: int = 1
    steps: int = 20
    converted: bool = False
    seed: int = 0
    threads: int = 1
    limit: float = 600.0
    perturb: bool = False
    quiet: bool = False
    cuda_as_cpu: bool = False
    simulated_gpu: bool = False
    environment: dict[str, str] = field(default_factory=dict)
    allow_network: bool = False
    save_weights: Path | None = None
    reference: Path | None = None
    runtime: str = ""
    scaled: tuple[tuple[str, int, int], ...] = ()
    factor: int = 1
    counts: dict[str, list[Extent]] = field(default_factory=dict)
    trace: tuple[int, ...] = ()
    save_trace: Path | None = None
    reference_trace: Path | None = None
    tolerance: float = 0.0
    module: str = ""
    schedule: tuple[tuple[tuple[str, int], list[Any]], ...] = ()
    probes: dict[str, list[Sequence[Any]]] = field(default_factory=dict)
    shares: tuple[tuple[str, int], ...] = ()


@dataclass
class Run:
    """A run that has ended.

    `failure` is one sentence, None for a run that went through. `output` is what rank 0 printed. `changes` are all the
    paths that the run changed in its sandbox, `texts` the files that ran, as they ran, by their real path.
    """

    label: str
    processes: int
    ranks: list[RankRecord]
    seconds: float
    failure: str | None = None
    output: str = ""
    changes: list[Change] = field(default_factory=list)
    texts: dict[str, str] = field(default_factory=dict)
    scratch: Scratch | None = None
    simulated_gpu: bool = False

    @property
    def title(self) -> str:
        """On what it ran: `1 process`, `2 processes`, `1 simulated GPU`."""
        if self.simulated_gpu:
            return "1 simulated GPU"
        return f"{self.processes} process{'es' if self.processes > 1 else ''}"

    @property
    def notes(self) -> list[str]:
        """What the sandbox has blocked, one sentence for each place and address."""
        found: dict[str, None] = {}
        for rank in self.ranks:
            for event in rank.events.get("network", []):
                sentence = f"a trial run has no network, and {event['address']} was not reached"
                found[f"{self._place(event['site'])}{sentence}: --allow-network lets it through"] = None
            for event in rank.events.get("stopped", []):
                sentence = (
                    f"{event['what']} ended with an error, and could not have written outside the trial run's"
                )
                sentence += " sandbox: this machine gives verify no user namespaces"
                found[self._place(event["site"]) + sentence] = None
        return list(found)

    def _place(self, site: list[Any] | None) -> str:
        if not site:
            return ""
        file, line = site
        return f"{in_words(file, [line], self.texts.get(file, ''))} of {os.path.basename(file)}: "

    def close(self) -> None:
        """Remove the run's folder: the content of its changes cannot be read any more."""
        if self.scratch is not None:
            self.scratch.close()

    @property
    def losses(self) -> list[float]:
        """The loss of each backward over all ranks: the mean of what each called backward on."""
        if self.processes == 1:
            # Of losses that are weighed, those of a window become means at its end.
            return [
                loss.raw if loss.weight is None else loss.value * loss.scale for loss in self.ranks[0].losses
            ]
        return [
            mean_loss([loss.value * loss.scale for loss in row], [loss.weight for loss in row])
            for row in zip(*(rank.losses for rank in self.ranks), strict=False)
        ]

    @property
    def steps(self) -> int:
        """Optimizer steps of the optimizer that made most; backward calls where there is no optimizer."""
        first = self.ranks[0]
        if not first.steps:
            return len(first.losses)
        numbers = [step.optimizer for step in first.steps]
        return max(numbers.count(number) for number in set(numbers))

    @property
    def rates(self) -> list[tuple[float, ...]]:
        """The learning rates at each optimizer step, in order."""
        return [step.rates for step in self.ranks[0].steps]

    @property
    def repeated(self) -> bool:
        """Whether every process did the whole work: each had the same losses as all the others.

        Losses that never change say nothing where every loader gave the processes other samples.
        """
        first = [loss.value for loss in self.ranks[0].losses]
        if self.processes < 2 or (len(set(first)) == 1 and self.shared_out):
            return False
        return all(
            len(rank.losses) == len(first)
            and all(same(loss.value, value) for loss, value in zip(rank.losses, first, strict=True))
            for rank in self.ranks
        )

    @property
    def shared_out(self) -> bool:
        """Whether there are loaders, and each has passed different samples to the processes."""
        found: dict[str, bool] = {}
        for events in zip(*(rank.events.get("batch", ()) for rank in self.ranks), strict=False):
            drawn = [event["indices"] for event in events]
            key = str(events[0]["key"])
            found[key] = found.get(key, False) or (None not in drawn and any(d != drawn[0] for d in drawn))
        return bool(found) and all(found.values())

    @property
    def uneven(self) -> str | None:
        """What the ranks disagree on, None when they agree."""
        if len({len(rank.losses) for rank in self.ranks}) > 1:
            counts = ", ".join(str(len(rank.losses)) for rank in self.ranks)
            return f"its processes call backward a different number of times ({counts})"
        if len({len(rank.steps) for rank in self.ranks}) > 1:
            return "its processes make a different number of optimizer steps"
        return "its processes end with different weights" if self.parted else None

    @property
    def parted(self) -> bool:
        """Whether the ranks end with different weights, or with different buffers at the end of the script.

        Within a step each rank has the statistics of its batch, and a run that is cut short ends within one.
        """
        cut = self.ranks[0].ended == "steps"
        return len({(rank.weights, None if cut else rank.buffers) for rank in self.ranks}) > 1

    def same_as(self, other: Run) -> bool:
        """Equal to the bit: losses, learning rates and weights."""
        a, b = self.losses, other.losses
        return (
            len(a) == len(b)
            and all(map(same, a, b))
            and self.rates == other.rates
            and same_end(self.ranks[0], other.ranks[0])
        )


def execute(job: Job, nursery: Nursery, progress: Progress = silent) -> Run:
    """Run `job` in a sandbox; nothing it started is left, and what it wrote until `Run.close` or the nursery's."""
    nursery.ready()
    scratch = nursery.scratch()
    place = InNamespaces(job, scratch) if nursery.kind == "namespaces" else InMirror(job, scratch)
    with reserved_port() as port:
        order: dict[str, Any] = {
            "kind": nursery.kind, "home": str(scratch.home), "network": job.allow_network,
            "port": port, "floor": nursery.floor, **place.order(),
            "ranks": [_rank_order(job, place, scratch, rank, port) for rank in range(job.processes)],
        }  # fmt: skip
        started_at = time.monotonic()
        started = nursery.start(order)
        news = News(scratch.results / "rank0.jsonl", job.steps, progress)
        try:
            failure = _wait(nursery, started, job.limit, news)
        finally:
            nursery.end(started)
        seconds = time.monotonic() - started_at
    scratch.tidy()
    if started.trouble:
        if not nursery.give_up_namespaces(started.trouble):
            raise NurseryError(f"{started.trouble}.")
        scratch.close()
        return execute(job, nursery, progress)
    ranks = [read_rank(scratch.results / f"rank{rank}.jsonl") for rank in range(job.processes)]
    outputs = [_text(scratch.results / f"output{rank}.txt") for rank in range(job.processes)]
    run = Run(
        job.label, job.processes, ranks, seconds, output=outputs[0], changes=place.changes(), scratch=scratch,
        simulated_gpu=job.simulated_gpu,
    )  # fmt: skip
    run.texts = {path: data.decode(errors="replace") for path, data in _files(job).items()}
    run.failure = failure or _failure(job, run, [code or 0 for code in started.codes], outputs)
    return run


def _files(job: Job) -> dict[str, bytes]:
    """The files of the user's that are known to run, as they run, by their real path."""
    script = os.path.realpath(job.script)
    replaced = {os.path.realpath(path): data for path, data in job.replaced.items()}
    return replaced if script in replaced else {script: Path(script).read_bytes(), **replaced}


def _rank_order(job: Job, place: Place, scratch: Scratch, rank: int, port: int) -> dict[str, Any]:
    """What one rank has to do."""
    environment = {**job.environment, "TMPDIR": str(scratch.temporary), **place.environment()}
    if not job.allow_network:
        environment |= offline(os.environ)
    if job.processes > 1:
        environment |= {
            "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(job.processes),
            "LOCAL_WORLD_SIZE": str(job.processes), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
        }  # fmt: skip
    named = str(job.script)
    return {
        **place.rank_order(),
        "rank": rank,
        "world": job.processes,
        "script": place.script(),
        "arguments": [
            place.word(named) if os.path.isabs(named) else named, *(place.word(word) for word in job.arguments)
        ],
        "working": place.working(),
        "environment": environment,
        "network": job.allow_network,
        "output": str(scratch.results / f"output{rank}.txt"),
        "results": str(scratch.results),
        "steps": job.steps,
        "seed": job.seed,
        "threads": job.threads,
        "converted": job.converted,
        "runtime": job.runtime,
        "scaled": [list(key) for key in job.scaled],
        "factor": job.factor,
        "counts": job.counts,
        "module": job.module,
        "schedule": list(job.schedule),
        "probes": job.probes,
        "shares": list(job.shares),
        "trace": list(job.trace),
        "save_trace": str(job.save_trace) if job.save_trace else None,
        "tolerance": job.tolerance,
        "reference_trace": str(job.reference_trace) if job.reference_trace else None,
        "perturb": job.perturb,
        "quiet": job.quiet,
        "cuda_as_cpu": job.cuda_as_cpu,
        "simulated_gpu": job.simulated_gpu,
        "save_weights": str(job.save_weights) if job.save_weights else None,
        "reference": str(job.reference) if job.reference else None,
    }  # fmt: skip


def _wait(nursery: Nursery, started: Started, limit: float, news: News) -> str | None:
    """Wait for all; once one has failed the others get a moment and are ended. Returns a sentence on time-out."""
    deadline = time.monotonic() + limit
    while True:
        codes = list(started.codes)
        if started.trouble or started.ended or all(code is not None for code in codes):
            return None
        now = time.monotonic()
        if any(codes):
            deadline = min(deadline, now + GRACE)
        if now > deadline:
            return None if any(codes) else f"it did not end within {limit:.0f} s"
        nursery.wait(min(0.2, max(deadline - now, 0.01)))
        news.look()


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def _failure(job: Job, run: Run, codes: list[int], outputs: list[str]) -> str | None:
    ranks = run.ranks
    errors = [(rank.error["time"], number) for number, rank in enumerate(ranks) if rank.error]
    if errors:
        number = min(errors)[1]
        where = f"(on rank {number})" if len(ranks) > 1 else ""
        script = os.path.realpath(job.script)
        found = ranks[number].error or {}
        line = f"{in_words(script, [found['line']], run.texts.get(script, ''))}: " if found["line"] else ""
        return " ".join(filter(None, [line + _stated(ranks[number], outputs[number]), where]))
    # The others are killed once one has failed.
    by_itself = [number for number, code in enumerate(codes) if code not in (0, -signal.SIGKILL)]
    for number, code in [(number, codes[number]) for number in by_itself] or list(enumerate(codes)):
        if code != 0:
            last = _last_line(outputs[number])
            how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"
            return f"it ended with {how}" + (f": {last}" if last else "")
    if any(rank.ended is None for rank in ranks):
        return "it left without a word (os._exit?)"
    return None


def _stated(rank: RankRecord, output: str) -> str:
    assert rank.error is not None
    if rank.error["type"] == "SystemExit":
        last = _last_line(output)
        stated = f"it exits by itself: {rank.error['said']}"
        if last and last != rank.error["said"]:
            stated += f"; the last line that it printed: {last}"
        return stated
    reported = " ".join(str(rank.error["said"]).split())
    stated = f"{rank.error['type']}: {reported[:400]}".rstrip(": ")
    if "attempted relative import" in reported:
        stated += "; it is part of a package: run it as a module, with -m PACKAGE.MODULE"
    elif rank.error["type"] == "ModuleNotFoundError":
        stated += f"; {sys.executable} does not find it: install it there, or run from the folder that has it"
    return stated


def _last_line(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return lines[-1][:400] if lines else ""
