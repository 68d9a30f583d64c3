"""The processes of runs: each sets everything up as `python script.py` would, then runs the script and records it."""

from __future__ import annotations

import contextlib
import gc
import importlib
import importlib.machinery
import io
import json
import os
import random
import selectors
import signal
import sys
import tempfile
import time
import traceback
import types
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from accelify.verify.events import EventWriter
from accelify.verify.sandbox import network, redirected, renames
from accelify.verify.sandbox.namespaces import lead, probe
from accelify.verify.sandbox.places import FORCE
from accelify.verify.sandbox.scratch import Scratch, remove

PATIENCE = 60.0
"""Seconds that a rank waits at its end for the others to reach theirs."""

_PRELOADED = (
    # What torch's optimizers import at their first use, and what every copy imports.
    "torch._dynamo",
    "accelify.runtime.accelerator",
    # What every rank imports.
    "accelify.verify.observe.everything",
    "accelify.verify.observe.loaders",
    "accelify.verify.observe.schedules",
    "accelify.verify.observe.tracing",
    "accelify.verify.probes.recording",
)


def serve() -> None:
    """Import torch once, then carry out every order that comes in, as a line of JSON, and report how each ended.

    A fork of a process that has only imported torch starts at once, where a fresh interpreter takes seconds.
    """
    _make_deterministic()
    try:
        importlib.import_module("accelify.verify.observe.recorder")
    except Exception as error:
        _tell({"broken": f"{type(error).__name__}: {error}"})
        return
    for name in _PRELOADED:
        with contextlib.suppress(Exception):
            importlib.import_module(name)
    # Ranks look for what their script has let go of; going through all that torch consists of takes them half a second
    # each time.
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    kind, why_not = _kind()
    _tell({"ready": kind, "why_not": why_not})
    leaders: dict[int, int] = {}
    homes: dict[int, str] = {}
    selector = selectors.DefaultSelector()
    selector.register(0, selectors.EVENT_READ)
    received = b""
    while True:
        if selector.select(0.01):
            data = os.read(0, 65536)
            if not data:
                break
            *lines, received = (received + data).split(b"\n")
            for line in lines:
                order = json.loads(line)
                if "end" in order:
                    _end(pid for pid, run in leaders.items() if run == order["end"])
                else:
                    homes[order["run"]] = order["home"]
                    leaders[_lead(order)] = order["run"]
        while leaders:
            pid, _ = os.waitpid(-1, os.WNOHANG)
            if not pid:
                break
            _tell({"run": leaders.pop(pid), "ended": True})
    # The one who asked has gone: nothing may outlive it, and nobody else is left to clear up.
    _end(leaders)
    for pid in leaders:
        with contextlib.suppress(OSError):
            os.waitpid(pid, 0)
    for home in homes.values():
        remove(Path(home))
    os._exit(0)


def _kind() -> tuple[str, str]:
    """The kind of sandbox, and why it is not the one with namespaces."""
    forced = os.environ.pop(FORCE, "")
    if not sys.platform.startswith("linux"):
        return "redirected", "namespaces are Linux's"
    if forced.startswith("redirected"):
        return "redirected", f"{FORCE} says so"
    scratch = Scratch()
    try:
        why_not = probe(str(scratch.home))
    finally:
        scratch.close()
    return ("redirected" if why_not and not forced else "namespaces"), why_not


def _tell(answer: dict[str, Any]) -> None:
    os.write(1, json.dumps(answer).encode() + b"\n")


def _end(leaders: Iterable[int]) -> None:
    for pid in leaders:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)


def _lead(order: dict[str, Any]) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 70
    try:
        os.setsid()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        code = (lead if order["kind"] == "namespaces" else redirected.lead)(order, _tell, _rank)
    finally:
        os._exit(code)


def _rank(job: dict[str, Any]) -> None:
    """One rank, in a fresh fork; does not return."""
    code = 70
    try:
        os.setsid()
        output = os.open(job["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.chdir(job["working"])
        os.environ.update(job["environment"])
        if job["tree"]:
            os.environ.update(redirected.again(job))
        tempfile.tempdir = None
        sys.path[:] = [job.get("paths", {}).get(path, path) for path in sys.path]
        code = run_rank(job)
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        # What is registered for the end of a process (writers, worker pools) belongs to a run that was cut short.
        os._exit(code)


def run_rank(job: dict[str, Any]) -> int:
    """Run and record one rank as `job` says; returns the exit status."""
    import torch

    from accelify.verify.observe import everything, multiplied, schedules
    from accelify.verify.observe.context import Context
    from accelify.verify.observe.loaders import LoaderWatch
    from accelify.verify.observe.recorder import Enough, Recorder
    from accelify.verify.observe.tracing import Tracer

    rank: int = job["rank"]
    results = Path(job["results"])
    writer = EventWriter(os.path.join(job["results"], f"rank{rank}.jsonl"))
    torch.set_num_threads(job["threads"])
    torch.backends.cudnn.deterministic = True
    _seed(job["seed"], rank)
    context = Context(writer, rank, job["world"], job["tree"] or "")
    if job["simulated_gpu"]:
        from accelify.verify.simulated_gpu import installation

        # Before the observers, which wrap what is in place.
        installation.install()
    tracer = None
    if job["trace"]:
        tracer = Tracer(job["trace"], try_rows=job["world"] == 1)
        tracer.install()
    recorder = Recorder(
        context,
        job["steps"],
        leave=lambda: _wait_for_others(results, rank, job["world"]),
        save_weights=job["save_weights"] if rank == 0 else None,
        reference=job["reference"] if rank == 0 else None,
        perturb=job["perturb"],
        quiet=job["quiet"],
        tracer=tracer,
    )
    recorder.install()
    loaders = LoaderWatch(context, job["scaled"], job["factor"])
    loaders.install()
    if job["converted"]:
        from accelify.runtime.observers import add_backward_observer

        add_backward_observer(recorder.observe)
    if job["runtime"]:
        package = "accelify.runtime" if job["runtime"] == "accelify" else job["runtime"]
        loaders.watch_preparation(importlib.import_module(package).Accelerator)
        schedules.watch(context, importlib.import_module(f"{package}.scheduler").AcceleratedScheduler)
    if job["schedule"]:
        schedules.impose(context, job["schedule"])
    if job["cuda_as_cpu"]:
        from accelify.verify.observe import devices

        devices.install()
    if not job["network"]:
        network.watch(context)
    if job["tree"]:
        redirected.install(job, context)
    else:
        renames.install()
    context.sites.shares = set(map(tuple, job["shares"]))
    if job["probes"]:
        from accelify.verify.probes import recording

        recording.install(context, job["probes"])
    if job["counts"]:
        multiplied.install(context, job["counts"], job["factor"])
    everything.install(context)
    code, why = 0, "finished"
    try:
        _run(job["script"], job["arguments"], job["module"])
    except Enough:
        why = "steps"
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
        if code:
            reported = stop.code if isinstance(stop.code, str) else f"status {code}"
            writer.write(_error("SystemExit", reported, stop, job["script"], job["tree"] or ""))
    except BaseException as error:
        code = 1
        traceback.print_exc()
        writer.write(_error(type(error).__name__, str(error), error, job["script"], job["tree"] or ""))
    everything.finish(context)
    if code == 0:
        recorder.finish(why)
        if tracer is not None:
            torch.save(tracer.windows, results / f"trace{rank}.pt")
        _wait_for_others(results, rank, job["world"])
        if tracer is not None and rank == 0:
            _compare_traces(job, results, writer)
    return code


def _compare_traces(job: dict[str, Any], results: Path, writer: EventWriter) -> None:
    """Write where this run parts from the traced reference; or, without one, leave the trace for the run that asks."""
    import torch

    from accelify.verify.observe.parting import first_difference

    if job["save_trace"]:
        os.replace(results / "trace0.pt", job["save_trace"])
        return
    traces = [torch.load(results / f"trace{rank}.pt", weights_only=True) for rank in range(job["world"])]
    reference = torch.load(job["reference_trace"], weights_only=True)
    number, sentence = first_difference(reference, traces, job["tolerance"])
    writer.write({"event": "parted", "call": number, "sentence": sentence})


def _run(script: str, arguments: list[str], name: str = "") -> None:
    from accelify.verify.observe.decisions import compile_script

    with io.open_code(script) as file:
        code = compile_script(file.read(), script)
    module = types.ModuleType("__main__")
    module.__dict__.update(
        __file__=script,
        __builtins__=__builtins__,
        __loader__=importlib.machinery.SourceFileLoader("__main__", script),
        __cached__=None,
    )
    sys.modules["__main__"] = module
    sys.path[0] = os.getcwd() if name else os.path.dirname(script)
    sys.argv = list(arguments)
    if script.endswith(".ipynb"):
        module.__dict__["display"] = print
    if name:
        # As `python -m` does, so that relative imports find their package.
        package = name if os.path.basename(script) == "__main__.py" else name.rpartition(".")[0]
        module.__dict__.update(
            __package__=package,
            __spec__=importlib.machinery.ModuleSpec(
                name, importlib.machinery.SourceFileLoader(name, script), origin=script
            ),
        )
        sys.argv[0] = script
        if package:
            importlib.import_module(package)
    exec(code, module.__dict__)


_ENTROPY = random.Random()


def _make_deterministic() -> None:
    """Entropy of the system, where NumPy takes it for an unseeded generator, comes from the seed too.

    Before NumPy is imported, which takes over the function.
    """
    import secrets

    secrets.randbits = _ENTROPY.getrandbits  # type: ignore[assignment]


def _seed(seed: int, rank: int) -> None:
    """Seed what the script may leave unseeded, so that a run can be repeated.

    torch begins every process with the same numbers. Python and NumPy take entropy of the system, which is another in
    each process.
    """
    import torch

    torch.manual_seed(seed)
    another = (seed + 7919 * rank) % 2**32
    _ENTROPY.seed(another)
    random.seed(another)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(another)


def _error(kind: str, reported: str, error: BaseException, script: str, tree: str) -> dict[str, Any]:
    from accelify.verify.observe.sites import is_library

    line = None
    stack = []
    for frame, number in traceback.walk_tb(error.__traceback__):
        file = frame.f_code.co_filename
        if file == script:
            line = number
        if not is_library(file):
            stack.append((file.removeprefix(tree), number))
    return {
        "event": "error",
        "type": kind,
        "said": reported,
        "line": line,
        "stack": stack,
        "time": time.time(),
    }


def _wait_for_others(results: Path, rank: int, world: int) -> None:
    """Rank 0 hosts the store that the others may still ask, so all ranks leave together."""
    (results / f"done{rank}").touch()
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if all((results / f"done{other}").exists() for other in range(world)):
            return
        time.sleep(0.01)
