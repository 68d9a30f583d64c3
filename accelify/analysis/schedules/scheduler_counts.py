"""Prepared schedulers that get the script's count of steps: `scheduler.step(step)`, `last_epoch=step`.

A step with a number as its argument sets the schedule to that number and does not advance by the batches of all
processes. A count of the batches that one process takes reaches 1/N of the original's in an epoch. The number of an
epoch, or a fraction of an epoch (`epoch + i / len(loader)`), is the original's on any number of processes.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Set
from typing import NamedTuple

from accelify.analysis.program import Module
from accelify.analysis.schedules.counted_steps import CountedSteps, Trace
from accelify.analysis.scopes import Scope
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import dotted, walk
from accelify.analysis.training_loops import Loop
from accelify.analysis.values import Entity


class SchedulerCount(NamedTuple):
    """A step or the constructor call of a scheduler that gets a count.

    `place` is the call, or where that is in a module which is not converted, the one that leads to it; `counter`
    what is counted.
    """

    place: ast.Call
    counter: str


def scheduler_counts(script: ScriptModel, loop: Loop, schedulers: Set[Entity]) -> Iterator[SchedulerCount]:
    """The steps with a count of batches that some schedulers make in a loop over batches."""
    if not schedulers:
        return
    steps = CountedSteps(script, loop)
    if steps.counted_by_length(script.enclosing_loops(loop)):
        return
    for scope, chain in steps.reached.items():
        module = steps.module(scope)
        for call in steps.nodes(scope):
            stated = _stated(call)
            if stated is None:
                continue
            assert isinstance(call, ast.Call)
            assert isinstance(call.func, ast.Attribute)
            if not schedulers & script.interpreter.evaluate(module, scope, call.func.value):
                continue
            trace = Trace(steps)
            trace.follow(stated, scope)
            if trace.counters and not (trace.by_length and _is_share(steps, stated, scope)):
                yield SchedulerCount(call if module in script.modules else chain[0], min(trace.counters))


def begun_at_steps(script: ScriptModel, loop: Loop, schedulers: Set[Entity]) -> Iterator[SchedulerCount]:
    """The makings of some schedulers at a count of batches, which a resumed run has from its checkpoint."""
    steps: CountedSteps | None = None
    for scheduler in sorted(schedulers, key=Entity.place):
        site, module = scheduler.site, scheduler.module
        if not isinstance(site, ast.Call) or module is None or (begun := _begun_at(site)) is None:
            continue
        steps = steps or CountedSteps(script, loop)
        scope = script.scope_of(site) if module in script.modules else module.scopes.of(site)
        trace = Trace(steps)
        trace.follow(begun, scope)
        if not trace.counters or trace.by_length:
            continue
        for place in _places(script, site, module):
            yield SchedulerCount(place, min(trace.counters))


def _places(script: ScriptModel, site: ast.Call, module: Module) -> list[ast.Call]:
    """A call of the script's, or those that lead to it in a module which is not converted."""
    if module in script.modules:
        return [site]
    pairs = script.interpreter.callers.get(module.scopes.of(site), [])
    return [call for where, call in pairs if where in script.modules]


def _begun_at(made: ast.Call) -> ast.expr | None:
    """Where a schedule begins: `last_epoch=step`."""
    return next((kw.value for kw in made.keywords if kw.arg == "last_epoch"), None)


def _is_share(steps: CountedSteps, stated: ast.expr, scope: Scope) -> bool:
    """Whether something is divided in a number, as a count is by a length for the share of an epoch that is done."""
    made = [stated]
    for node in walk(stated):
        name = dotted(node) if isinstance(node, (ast.Name, ast.Attribute)) else None
        made += [stmt.value for stmt in steps.assigning(scope, name)] if name is not None else []
    return any(isinstance(n, ast.BinOp) and isinstance(n.op, ast.Div) for one in made for n in walk(one))


def _stated(node: ast.AST) -> ast.expr | None:
    """The number in `scheduler.step(number)` and `scheduler.step(epoch=number)`."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr != "step":
        return None
    named = next((kw.value for kw in node.keywords if kw.arg == "epoch"), None)
    return node.args[0] if len(node.args) == 1 and not isinstance(node.args[0], ast.Starred) else named


__all__ = ["SchedulerCount", "begun_at_steps", "scheduler_counts"]
