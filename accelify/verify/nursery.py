"""Where the processes of all runs come from: one interpreter that has imported torch, and forks."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import accelify
from accelify.verify.sandbox.places import FORCE
from accelify.verify.sandbox.scratch import Scratch

IMPORT_LIMIT = 300.0
"""Seconds that importing torch may take on a machine that is busy or cold."""
_LAUNCHERS = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "NODE_RANK", "MASTER_ADDR",
              "MASTER_PORT", "PYTHONSTARTUP", "PYTHONINSPECT"}  # fmt: skip
_START = "import sys; sys.path[0] = {root!r}; from accelify.verify.child import serve; serve()"


class NurseryError(Exception):
    """No process could be made; the text is one sentence."""


@dataclass
class Started:
    """The processes of one run.

    `codes` are the exit statuses by rank, None for one that runs. `trouble` says why none was started.
    """

    number: int
    codes: list[int | None] = field(default_factory=list)
    ended: bool = False
    trouble: str = ""


class Nursery:
    """Makes processes as long as it is open; closing it ends every one of them and removes their folders.

    Several threads may use one nursery at the same time.

    Args:
        threads: of each process, the same in all runs since the order of a sum depends on it.
        gpu: leave CUDA devices visible.
        kind: of sandbox, as the variable `FORCE` has it; what the machine allows when None.
    """

    def __init__(self, threads: int, gpu: bool = False, kind: str | None = None) -> None:
        self.gpu = gpu
        environment = {name: value for name, value in os.environ.items() if name not in _LAUNCHERS}
        environment |= {
            "PYTHONHASHSEED": "0",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONUNBUFFERED": "1",
            "MPLBACKEND": "Agg",
            # Warnings of sockets between ranks are not the script's.
            "TORCH_CPP_LOG_LEVEL": "ERROR",
            "OMP_NUM_THREADS": str(threads),
        }
        if kind is not None:
            environment[FORCE] = kind
        if gpu:
            # Without it cuBLAS may answer differently from one run to the next.
            environment["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
        else:
            environment |= {
                "CUDA_VISIBLE_DEVICES": "",
                "ACCELIFY_USE_CPU": "true",
                "ACCELERATE_USE_CPU": "true",
            }
        self.forced = bool(environment.get(FORCE))
        self.floor = environment.get(FORCE) != "redirected-bare"
        """Whether Landlock is used where there are no namespaces."""
        root = str(Path(accelify.__file__).parent.parent)
        self.process = subprocess.Popen(
            [sys.executable, "-c", _START.format(root=root)],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self.kind = ""
        """The kind of sandbox, once ready."""
        self.why_not = ""
        """Why it is not `namespaces`."""
        self._broken: str | None = None
        self._dead = False
        self._runs: dict[int, Started] = {}
        self._scratches: list[Scratch] = []
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Nursery:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def ready(self) -> None:
        """Return when torch is imported. Raises NurseryError when it cannot be."""
        deadline = time.monotonic() + IMPORT_LIMIT
        with self._changed:
            while not self.kind and self._broken is None and not self._dead:
                if not self._changed.wait(max(0.0, deadline - time.monotonic())):
                    raise NurseryError("the interpreter that makes the processes does not answer.")
        if self._broken is not None:
            raise NurseryError(f"torch cannot be imported: {self._broken}.")
        self._alive()

    def give_up_namespaces(self, why_not: str) -> bool:
        """Use the other kind from now on; False where it is the one already, or this one was asked for."""
        with self._changed:
            if self.kind != "namespaces" or self.forced:
                return False
            self.kind, self.why_not = "redirected", why_not
            return True

    def scratch(self) -> Scratch:
        """A folder for one run, which is removed with the nursery at the latest."""
        scratch = Scratch()
        with self._changed:
            self._scratches.append(scratch)
        return scratch

    def start(self, order: dict[str, Any]) -> Started:
        """Make the processes of the run that `order` describes."""
        with self._changed:
            started = Started(len(self._runs), [None] * len(order["ranks"]))
            self._runs[started.number] = started
            self._send({**order, "run": started.number})
        return started

    def wait(self, seconds: float) -> None:
        """Return when some process has ended, after at most `seconds`."""
        with self._changed:
            self._alive()
            self._changed.wait(seconds)

    def end(self, started: Started) -> None:
        """End the processes of a run and whatever they started (loader workers), and wait for them."""
        deadline = time.monotonic() + 10
        with self._changed:
            if not started.ended and not self._dead:
                with contextlib.suppress(NurseryError):
                    self._send({"end": started.number})
            while not started.ended and not self._dead and time.monotonic() < deadline:
                self._changed.wait(0.1)

    def running(self) -> list[int]:
        """The numbers of the runs that have not ended."""
        with self._changed:
            return [run.number for run in self._runs.values() if not run.ended]

    def close(self) -> None:
        """End everything and remove every run's folder."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        # The interpreter ends all that it has started before it ends.
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._reader.join(5)
        self.process.stdout.close()
        with self._changed:
            self._dead = True
            self._changed.notify_all()
        for scratch in self._scratches:
            scratch.close()

    def _send(self, order: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(order).encode() + b"\n")
            self.process.stdin.flush()
        except (BrokenPipeError, ValueError):
            raise NurseryError("the interpreter that makes the processes has died.") from None

    def _alive(self) -> None:
        if self._dead:
            raise NurseryError("the interpreter that makes the processes has died.")

    def _read(self) -> None:
        assert self.process.stdout is not None
        with contextlib.suppress(ValueError, OSError):
            for line in self.process.stdout:
                with self._changed:
                    self._note(json.loads(line))
                    self._changed.notify_all()
        with self._changed:
            self._dead = True
            self._changed.notify_all()

    def _note(self, answer: dict[str, Any]) -> None:
        if "broken" in answer:
            self._broken = answer["broken"]
        elif "ready" in answer:
            self.kind, self.why_not = answer["ready"], answer["why_not"]
        elif "run" in answer:
            run = self._runs[answer["run"]]
            if "rank" in answer:
                run.codes[answer["rank"]] = answer["code"]
            elif "trouble" in answer:
                run.trouble = answer["trouble"]
            elif "ended" in answer:
                run.ended = True
                run.codes = [-signal.SIGKILL if code is None else code for code in run.codes]
