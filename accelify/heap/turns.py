"""The main process before the others: they wait before a part of the script, it waits with them after that part.

if rank != 0:
    barrier()
...             # the main process first
if rank == 0:
    barrier()
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from accelify.heap.run import Event, Run
from accelify.heap.values import Guard

_WAITS = frozenset({"barrier", "monitored_barrier", "wait_for_everyone"})
FIRST = "first"


def take_turns(run: Run, stmt: ast.stmt, met: Sequence[Event], begun: int) -> int:
    """Begin or end, after a statement, what the main process does before the others.

    Args:
        run: the run.
        stmt: the statement.
        met: what was met in it.
        begun: how many guards stand around the block that the statement is in.

    Returns:
        How many guards there are more now.
    """
    waits = {
        guard.kind
        for event in met
        if event.kind == "collective" and event.name.rpartition(".")[2] in _WAITS
        for guard in event.guards
    } & {"main", "others"}
    before = len(run.guards)
    if waits == {"others"}:
        run.guards.append(Guard(FIRST, run.reason(stmt, "the others wait for the main process")))
    elif waits == {"main"}:
        run.guards[begun:] = [guard for guard in run.guards[begun:] if guard.kind != FIRST]
    return len(run.guards) - before
