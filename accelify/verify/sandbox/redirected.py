"""A run without namespaces: a leader that starts the ranks and leaves no process behind.

What a rank writes is led to the run's folder by `calls`; Landlock is the floor where there is one.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from accelify.verify.sandbox import landlock, linux

DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/tty", "/dev/ptmx", "/dev/pts", "/dev/shm")


def lead(
    order: dict[str, Any], tell: Callable[[dict[str, Any]], None], rank: Callable[[dict[str, Any]], None]
) -> int:
    """Carry out `order` in the process that calls, which has to be a fresh fork; returns its exit status."""
    if sys.platform.startswith("linux"):
        linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)
        linux.prctl(linux.PR_SET_CHILD_SUBREAPER, 1)
    running: dict[int, int] = {}

    def stop(*_: object) -> None:
        _end_all(set(running))
        os._exit(0)

    signal.signal(signal.SIGTERM, stop)
    for number, one in enumerate(order["ranks"]):
        pid = os.fork()
        if not pid:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            rank(one)
        running[pid] = number
    groups = set(running)
    while running:
        pid, status = os.wait()
        if pid in running:
            tell({"run": order["run"], "rank": running.pop(pid), "code": os.waitstatus_to_exitcode(status)})
    _end_all(groups)
    return 0


def floor(writable: list[str], ports: list[int] | None) -> bool:
    """Let the kernel stop what no call was led away from; returns whether it can."""
    return sys.platform.startswith("linux") and landlock.restrict([*writable, *DEVICES], ports)


def _end_all(groups: set[int]) -> None:
    """End the ranks' process groups and, where this process inherits orphans, all that descends from it."""
    deadline = time.monotonic() + 5
    for group in groups:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)
    while time.monotonic() < deadline:
        for pid in _children():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                time.sleep(0.005)
        except ChildProcessError:
            return


def _children() -> Iterator[int]:
    with contextlib.suppress(OSError), open(f"/proc/self/task/{os.getpid()}/children") as file:
        yield from map(int, file.read().split())
