"""A run in namespaces: who makes them, and the first process in them, which starts the ranks and ends with the last.

leader   unshares, sets the users up, waits
  init   process 1 of its process namespace: builds the root, gives up its capabilities, forks the ranks. When it
         ends, by itself or with the leader, the kernel ends all that is in the namespace.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Sequence
from typing import Any

from accelify.verify.sandbox import landlock, linux
from accelify.verify.sandbox.root import Root

Tell = Callable[[dict[str, Any]], None]
Rank = Callable[[dict[str, Any]], None]


def lead(order: dict[str, Any], tell: Tell, rank: Rank) -> int:
    """Carry out `order` in the process that calls, which has to be a fresh fork; returns its exit status.

    Args:
        order: `run` (its number), `home`, `real`, `replaced`, `folders`, `network` and the `ranks`.
        tell: reports `{"run": n, "rank": k, "code": c}` for each rank that ended and `"trouble"` where nothing ran.
        rank: runs one rank in the process that calls it and does not return.
    """
    linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)
    try:
        before = linux.effective_capabilities()
        enter_namespaces(bool(order["network"]))
        pid = os.fork()
    except OSError as error:
        tell({"run": order["run"], "trouble": f"no namespaces could be made: {error}"})
        return 1
    if pid:
        # Process 1 is gone only when all the others of its namespace are.
        signal.signal(signal.SIGTERM, lambda *_: os.kill(pid, signal.SIGKILL))
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)
    try:
        root = Root(order["home"], order["real"], order["replaced"], order["folders"])
        root.build()
        root.enter()
        if not order["network"]:
            linux.loopback_up()
        linux.drop_capabilities(before)
        linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)
        landlock.restrict(root.writable())
    except OSError as error:
        tell({"run": order["run"], "trouble": f"the sandbox could not be built: {error}"})
        return 1
    return run_ranks(order["run"], order["ranks"], tell, rank)


def run_ranks(run: int, orders: Sequence[dict[str, Any]], tell: Tell, rank: Rank) -> int:
    """Fork the ranks and wait for all of them, and for whatever they leave to this process; always returns 0."""
    running: dict[int, int] = {}
    for number, order in enumerate(orders):
        pid = os.fork()
        if not pid:
            rank(order)
        running[pid] = number
    while running:
        pid, status = os.wait()
        if pid in running:
            tell({"run": run, "rank": running.pop(pid), "code": os.waitstatus_to_exitcode(status)})
    return 0


def enter_namespaces(network: bool) -> None:
    """Put this process, which must have one thread, into fresh namespaces where its user has the same number.

    Raises OSError where the system does not allow it.
    """
    users, groups = os.getuid(), os.getgid()
    flags = linux.CLONE_NEWUSER | linux.CLONE_NEWNS | linux.CLONE_NEWPID | linux.CLONE_NEWIPC
    if not network:
        flags |= linux.CLONE_NEWNET
    if users == 0:
        # Root reads files of all users: that needs all of them in the map, which only a process outside can write.
        with _mapper(os.getpid()):
            linux.unshare(flags)
        with open("/proc/self/uid_map") as written:
            if written.read().strip():
                return
    else:
        linux.unshare(flags)
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{users} {users} 1"),
        ("gid_map", f"{groups} {groups} 1"),
    ):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)


class _mapper(contextlib.AbstractContextManager[None]):  # noqa: N801 (used as a function)
    """A process that stays outside and, at the end of the block, maps every user and group to itself."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def __enter__(self) -> None:
        wait, self.go = os.pipe()
        self.helper = os.fork()
        if self.helper:
            os.close(wait)
            return
        try:
            os.close(self.go)
            if os.read(wait, 1):
                for name in ("uid_map", "gid_map"):
                    _write_same(f"/proc/self/{name}", f"/proc/{self.pid}/{name}")
        finally:
            os._exit(0)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            os.write(self.go, b"x")
        os.close(self.go)
        os.waitpid(self.helper, 0)


def _write_same(ours: str, theirs: str) -> None:
    with open(ours) as file:
        lines = [line.split() for line in file]
    with open(theirs, "w") as file:
        file.write("".join(f"{inner} {inner} {count}\n" for inner, _, count in lines))


def probe(home: str) -> str:
    """What is in the way of a run in namespaces here, found by building an empty one; nothing when it is empty."""
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        code = 1
        try:
            os.close(reading)
            order = {
                "run": 0,
                "home": home,
                "real": [],
                "replaced": {},
                "folders": [],
                "network": False,
                "ranks": [],
            }
            code = lead(order, lambda answer: void(os.write(writing, answer["trouble"].encode())), void)
        finally:
            os._exit(code)
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8", errors="replace") as answers:
        trouble = answers.read()
    status = os.waitpid(pid, 0)[1]
    return trouble or (f"it ended with status {status}" if status else "")


def void(_: object) -> None:
    """Nothing to be done."""
