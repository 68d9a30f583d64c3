"""Where the processes of all runs come from: one interpreter that has imported torch, and forks."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any

import accelify

IMPORT_LIMIT = 300.0
"""Seconds that importing torch may take on a machine that is busy or cold."""
_LAUNCHERS = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "NODE_RANK", "MASTER_ADDR",
              "MASTER_PORT", "PYTHONSTARTUP", "PYTHONINSPECT"}  # fmt: skip
_START = "import sys; sys.path[0] = {root!r}; from accelify.verify.child import serve; serve()"


class NurseryError(Exception):
    """No process could be made; the text is one sentence."""


class Nursery:
    """Makes processes as long as it is open; closing it ends every one of them.

    Args:
        threads: of each process, the same in all runs since the order of a sum depends on it.
        gpu: leave CUDA devices visible.
    """

    def __init__(self, threads: int, gpu: bool = False) -> None:
        self.gpu = gpu
        environment = {name: value for name, value in os.environ.items() if name not in _LAUNCHERS}
        environment |= {
            "PYTHONHASHSEED": "0",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONUNBUFFERED": "1",
            "MPLBACKEND": "Agg",
            "WANDB_MODE": "disabled",
            "OMP_NUM_THREADS": str(threads),
        }
        if gpu:
            # Without it cuBLAS may answer differently from one run to the next.
            environment["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
        else:
            environment |= {
                "CUDA_VISIBLE_DEVICES": "",
                "ACCELIFY_USE_CPU": "true",
                "ACCELERATE_USE_CPU": "true",
            }
        root = str(Path(accelify.__file__).parent.parent)
        self.process = subprocess.Popen(
            [sys.executable, "-c", _START.format(root=root)],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self.codes: dict[int, int | None] = {}
        self._received = b""
        self._selector = selectors.DefaultSelector()
        assert self.process.stdout is not None
        self._selector.register(self.process.stdout, selectors.EVENT_READ)

    def __enter__(self) -> Nursery:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def ready(self) -> None:
        """Return when torch is imported. Raises NurseryError when it cannot be."""
        answer = self._expect("ready", "broken", limit=IMPORT_LIMIT)
        if "broken" in answer:
            raise NurseryError(f"torch cannot be imported: {answer['broken']}.")

    def start(self, job: dict[str, Any]) -> int:
        """Make the process that `job` describes and return its id, which is that of its process group too."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(job).encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise NurseryError("the interpreter that makes the processes has died.") from None
        pid: int = self._expect("started", limit=60.0)["started"]
        self.codes.setdefault(pid, None)
        return pid

    def wait(self, seconds: float) -> None:
        """Take in what has ended, for at most `seconds`; returns early when something did."""
        if answer := self._read(seconds):
            self._note(answer)

    def end(self, pids: list[int]) -> None:
        """End these processes and whatever they started (loader workers), and wait for them."""
        for pid in pids:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)
        deadline = time.monotonic() + 10
        while any(self.codes[pid] is None for pid in pids) and time.monotonic() < deadline:
            self.wait(0.1)

    def close(self) -> None:
        """End everything."""
        self.end([pid for pid, code in self.codes.items() if code is None])
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._selector.close()
        assert self.process.stdout is not None
        self.process.stdout.close()

    def _expect(self, *keys: str, limit: float) -> dict[str, Any]:
        deadline = time.monotonic() + limit
        while time.monotonic() < deadline:
            answer = self._read(deadline - time.monotonic())
            if answer is not None:
                if any(key in answer for key in keys):
                    return answer
                self._note(answer)
        raise NurseryError("the interpreter that makes the processes does not answer.")

    def _note(self, answer: dict[str, Any]) -> None:
        if "pid" in answer:
            self.codes[answer["pid"]] = answer["code"]

    def _read(self, seconds: float) -> dict[str, Any] | None:
        deadline = time.monotonic() + seconds
        while b"\n" not in self._received:
            left = deadline - time.monotonic()
            if left <= 0 or not self._selector.select(left):
                return None
            assert self.process.stdout is not None
            data = os.read(self.process.stdout.fileno(), 65536)
            if not data:
                raise NurseryError("the interpreter that makes the processes has died.")
            self._received += data
        line, self._received = self._received.split(b"\n", 1)
        answer: dict[str, Any] = json.loads(line)
        return answer
