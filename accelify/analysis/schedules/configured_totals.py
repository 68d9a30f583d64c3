"""Schedules that are made for a configured number of steps in one branch, and for a loader's length in the other.

`total = args.max_steps if args.max_steps > 0 else len(loader) * epochs`: where the training ends after the configured
steps, each of N processes makes as many as before, and where it ends with its epochs 1/N of them. Neither a schedule
that advances by the batches of all processes nor one that is left as it is suits both, unless the length is that of the
process's share.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from accelify.analysis import values as v
from accelify.analysis.program import Module
from accelify.analysis.schedules.schedule_lengths import Length, given_to, lengths_read_by
from accelify.analysis.schedules.steps import step_limits
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import Node, dotted, walk
from accelify.analysis.values import Entity

_FARTHEST = 4


class ConfiguredTotal(NamedTuple):
    """A configured number of steps, the alternative from the length of a loader, and the schedule made from both."""

    stated: ast.expr
    length: Length
    scheduler: Entity


def configured_totals(script: ScriptModel) -> Iterator[ConfiguredTotal]:
    """The schedules of that kind whose training ends after the configured number of steps."""
    done: set[tuple[Entity, frozenset[str]]] = set()
    for call in script.calls():
        if not (isinstance(call.func, ast.Attribute) and call.func.attr == "step"):
            continue
        schedulers = script.entities(call.func.value, v.SCHEDULER)
        limits = frozenset(_last_names(*step_limits(script, call))) if schedulers else frozenset()
        for scheduler in schedulers if limits else ():
            if (scheduler, limits) not in done:
                done.add((scheduler, limits))
                yield from _of(script, scheduler, limits)


def _of(script: ScriptModel, scheduler: Entity, limits: frozenset[str]) -> Iterator[ConfiguredTotal]:
    site = scheduler.site
    if not isinstance(site, ast.Call) or scheduler.module is None:
        return
    queue: list[tuple[Node, Module, int]] = [
        (node, scheduler.module, 0) for node in [*site.args, *[kw.value for kw in site.keywords]]
    ]
    seen: set[Node] = set()
    while queue:
        node, home, far = queue.pop()
        if node in seen:
            continue
        seen.add(node)
        for inner in walk(node):
            if isinstance(inner, (ast.IfExp, ast.BoolOp)):
                yield from _parted(script, scheduler, limits, [(one, home) for one in _choices(inner)])
            elif isinstance(inner, (ast.Name, ast.Attribute)) and far < _FARTHEST:
                given = list(given_to(script, home, inner))
                yield from _parted(script, scheduler, limits, given)
                queue += [(value, where, far + 1) for value, where in given]


def _parted(
    script: ScriptModel, scheduler: Entity, limits: frozenset[str], given: list[tuple[Node, Module]]
) -> Iterator[ConfiguredTotal]:
    """The two alternatives of a number, where the configured one ends the training."""
    if len(given) < 2:
        return
    lengths = [list(lengths_read_by(script, home, value)) for value, home in given]  # type: ignore[arg-type]
    stated = [
        value
        for (value, _), own in zip(given, lengths, strict=True)
        if not own and isinstance(value, ast.expr) and limits.intersection(_last_names(value))
    ]
    for own in lengths if stated else ():
        for length in own:
            if _counts_epochs(length):
                continue
            yield ConfiguredTotal(stated[0], length, scheduler)


def _counts_epochs(length: Length) -> bool:
    """`max_steps // len(loader)`: the rounds over the loader in a number of steps."""
    inner: ast.AST = length.call
    for around in length.module.tree.ancestors(length.call):
        if isinstance(around, ast.stmt):
            break
        if isinstance(around, ast.BinOp) and around.right is inner:
            if isinstance(around.op, (ast.Div, ast.FloorDiv)):
                return True
        inner = around
    return False


def _choices(node: ast.IfExp | ast.BoolOp) -> list[ast.expr]:
    return [node.body, node.orelse] if isinstance(node, ast.IfExp) else node.values


def _last_names(*nodes: ast.expr) -> Iterator[str]:
    """The names of options in expressions: `max_steps` of `self.args.max_steps`."""
    for node in nodes:
        for inner in walk(node):
            name = dotted(inner) if isinstance(inner, (ast.Name, ast.Attribute)) else None
            if name is not None:
                yield name.rpartition(".")[2]


__all__ = ["ConfiguredTotal", "configured_totals"]
