"""Schedules that step in `for _ in range(len(loader))`: once a batch, as in a loop over the loader itself.

The length has to be that of a loader which is sharded by then: rounds of any other number are as many as before, on
any number of processes.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence, Set

from accelify.analysis import values as v
from accelify.analysis.planning.sites import PrepareSite
from accelify.analysis.schedules.schedule_lengths import runs_prepared
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import calls_in, dotted, text_of
from accelify.analysis.values import Entity

_LEAST = frozenset({"min", "max"})


def counted_by_batches(script: ScriptModel, step: ast.Call) -> list[tuple[ast.Call, set[Entity]]]:
    """The lengths that the rounds around a `step()` are counted by, with their loaders; none where there is another."""
    for loop in script.enclosing_loops(step):
        if not isinstance(loop, ast.For) or not any(script.trains(s) for s in loop.body):
            continue
        counted = next((n for n in calls_in(loop.iter) if dotted(n.func) == "range"), None)
        if counted is not None and len(counted.args) == 1:
            return _lengths(script, counted.args[0])
        return []
    return []


def early_schedules(
    script: ScriptModel,
    sites: Sequence[PrepareSite],
    prepared: Set[Entity],
    steps_per_batch: Callable[[ast.Call], bool],
) -> set[Entity]:
    """The schedules whose rounds are counted by what is no length of a prepared loader when it is taken."""
    found: set[Entity] = set()
    if not any(t.kind == v.SCHEDULER for t in prepared):
        return found
    for call in script.calls():
        if isinstance(call.func, ast.Attribute) and call.func.attr == "step":
            contained = script.entities(call.func.value, v.SCHEDULER) & prepared
            if contained and not steps_per_batch(call):
                for length, loaders in counted_by_batches(script, call):
                    if not loaders <= prepared or not runs_prepared(script, sites, loaders, length):
                        found |= contained
    return found


def _lengths(script: ScriptModel, count: ast.expr) -> list[tuple[ast.Call, set[Entity]]]:
    if isinstance(count, ast.Name):
        made = list(_made(script, count))
        return _lengths(script, made[0]) if len(made) == 1 and not isinstance(made[0], ast.Name) else []
    if not isinstance(count, ast.Call) or not count.args or count.keywords:
        return []
    if dotted(count.func) in _LEAST:
        each = [_lengths(script, one) for one in count.args]
        return [pair for one in each for pair in one] if all(each) else []
    if dotted(count.func) == "len":
        loaders = script.entities(count.args[0], v.LOADER)
        return [(count, loaders)] if loaders else []
    return []


def _made(script: ScriptModel, name: ast.Name) -> Iterator[ast.expr]:
    """What a name is assigned, except for a replacement of zero: `if n == 0: n = 100`."""
    scope = script.scope_of(name)
    for stmt in script.tree.assigns(name.id):
        branch = script.tree.parent(stmt)
        empty = isinstance(branch, ast.If) and text_of(branch.test) in (
            f"{name.id} == 0",
            f"not {name.id}",
        )
        if script.scope_of(stmt).resolve(name.id) is scope.resolve(name.id) and not empty:
            yield stmt.value
