"""A run without namespaces: a leader that starts the ranks and leaves no process running.

What a rank writes is led to the run's folder by `calls`; Landlock is the floor where there is one.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from accelify.verify.sandbox import landlock, linux
from accelify.verify.sandbox.calls import Calls
from accelify.verify.sandbox.tree import Tree

if TYPE_CHECKING:
    from accelify.verify.observe.context import Context

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
    stopped = bool(order["floor"]) and floor(order)
    for number, one in enumerate(order["ranks"]):
        one["stopped"] = stopped
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


def floor(order: dict[str, Any]) -> bool:
    """Let the kernel stop what no call was led away from; returns whether it can."""
    if not sys.platform.startswith("linux") or not landlock.version():
        return False
    folders = [os.path.join(order["home"], name) for name in ("tree", "results", "tmp")]
    ports = None if order["network"] else [order["port"]]
    return landlock.restrict([*folders, *order["real"], *DEVICES], ports)


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


def install(order: dict[str, Any], context: Context | None = None) -> None:
    """Lead this process's calls into the run's tree, for the rest of its life."""
    from accelify.verify.sandbox import network, programs, writers

    calls = Calls(Tree(order["home"], tuple(order["real"])))

    def report(what: str) -> None:
        if context is not None:
            context.emit_here("stopped", what=what)

    calls.install()
    if context is not None:
        from accelify.verify.observe.opened import WatchedFile

        calls.lead_files(WatchedFile)
    writers.install(calls)
    programs.install(calls, order["stopped"], report)
    if not order["network"]:
        network.refuse()


def again(order: dict[str, Any]) -> dict[str, str]:
    """The variables with which a Python that this one starts does the same."""
    site = str(Path(__file__).parent / "site")
    names = ("home", "real", "stopped", "network")
    return {
        "ACCELIFY_VERIFY_TREE": json.dumps({name: order[name] for name in names}),
        "ACCELIFY_VERIFY_PACKAGE": str(Path(__file__).parents[3]),
        "PYTHONPATH": os.pathsep.join(filter(None, [site, os.environ.get("PYTHONPATH", "")])),
    }


def install_again() -> None:
    """What `install` did in the process that started this one."""
    order = os.environ.get("ACCELIFY_VERIFY_TREE")
    if order:
        install(json.loads(order))
