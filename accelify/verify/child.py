"""One process of one run: sets everything up as `python script.py` would, then runs the script and records it."""

from __future__ import annotations

import contextlib
import importlib.machinery
import io
import json
import os
import random
import sys
import time
import traceback
import types
from pathlib import Path
from typing import Any

from accelify.verify.events import EventWriter
from accelify.verify.guard import Guard

PATIENCE = 60.0
"""Seconds that a rank waits at its end for the others to reach theirs."""


def main() -> None:
    """Run what the job file (first argument) says, then leave the process."""
    job: dict[str, Any] = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    rank = int(os.environ.get("RANK", "0"))
    writer = EventWriter(os.path.join(job["results"], f"rank{rank}.jsonl"))
    _make_deterministic(job["seed"])
    try:
        import torch
    except ImportError:
        os._exit(3)
    _seed(job["seed"])
    from accelify.verify.recorder import Enough, Recorder

    torch.set_num_threads(job["threads"])
    recorder = Recorder(
        writer,
        job["steps"],
        save_weights=job["save_weights"] if rank == 0 else None,
        reference=job["reference"] if rank == 0 else None,
        perturb=job["perturb"],
    )
    recorder.install()
    if job["converted"]:
        from accelify.runtime.observers import add_backward_observer

        add_backward_observer(recorder.observe)
    guard = Guard(job["tree"], job["protected"], (sys.prefix, sys.base_prefix))
    guard.wrap_native_writers()
    guard.install()
    code, why = 0, "finished"
    try:
        _run(job["script"], job["arguments"])
    except Enough:
        why = "steps"
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
        if code:
            said = stop.code if isinstance(stop.code, str) else ""
            writer.write(_error("SystemExit", said, stop, job["script"]))
    except BaseException as error:
        code = 1
        traceback.print_exc()
        writer.write(_error(type(error).__name__, str(error), error, job["script"]))
    if code == 0:
        recorder.finish(why)
        _wait_for_others(Path(job["results"]), rank)
    with contextlib.suppress(Exception):
        sys.stdout.flush()
        sys.stderr.flush()
    # What is registered for the end of the process (writers, worker pools) belongs to a run that was cut short.
    os._exit(code)


def _run(script: str, arguments: list[str]) -> None:
    with io.open_code(script) as file:
        code = compile(file.read(), script, "exec", dont_inherit=True)
    module = types.ModuleType("__main__")
    module.__dict__.update(
        __file__=script,
        __builtins__=__builtins__,
        __loader__=importlib.machinery.SourceFileLoader("__main__", script),
        __cached__=None,
    )
    sys.modules["__main__"] = module
    sys.path[0] = os.path.dirname(script)
    sys.argv = list(arguments)
    exec(code, module.__dict__)


def _make_deterministic(seed: int) -> None:
    """Entropy of the system, where NumPy takes it for an unseeded generator, comes from the seed too."""
    import secrets

    source = random.Random(seed)
    secrets.randbits = source.getrandbits  # type: ignore[assignment]


def _seed(seed: int) -> None:
    import torch

    torch.manual_seed(seed)
    random.seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed)


def _error(kind: str, said: str, error: BaseException, script: str) -> dict[str, Any]:
    line = None
    for frame, number in traceback.walk_tb(error.__traceback__):
        if frame.f_code.co_filename == script:
            line = number
    return {"event": "error", "type": kind, "said": said, "line": line, "time": time.time()}


def _wait_for_others(results: Path, rank: int) -> None:
    """Rank 0 hosts the store that the others may still ask, so all ranks leave together."""
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if world == 1:
        return
    (results / f"done{rank}").touch()
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if all((results / f"done{other}").exists() for other in range(world)):
            return
        time.sleep(0.01)
