"""Numbers of steps: training that ends after some, and schedules that are made for some."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accelify.analysis import values as v
from accelify.analysis.schedules.schedule_lengths import Length, given_to, lengths_read_by
from accelify.analysis.scopes import Scope
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import call_argument, dotted, names_in, walk
from accelify.analysis.values import Entity

_ORDER = (ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Eq)
_ENDS = (ast.Break, ast.Return, ast.Raise)
# Names through which a limit is followed.
_FARTHEST = 3
_EXITS = frozenset({"exit", "quit", "sys.exit", "os._exit"})


def ends_by_steps(script: ScriptModel, node: ast.AST) -> bool:
    """Whether the loop over batches around a node runs until a count of its rounds reaches a limit.

    `while step < total: for x in loader: step += 1`, or `if step >= total: break` among the batches. As many steps as
    before are then made on any number of processes, and epochs become more. Not so where the limit is the length of a
    loader, `len(loader) * epochs`, which may be that of one process.
    """
    return any(
        not lengths_of_limit(script, limit)
        for test, counters in _tests(script, node, frozenset())
        for limit in _limits(test, counters)
    )


def measured_limits(script: ScriptModel, node: ast.AST) -> Iterator[Length]:
    """The lengths of loaders that are the limits of the loop over batches around a node: `len(loader) * epochs`."""
    for test, counters in _tests(script, node, frozenset()):
        for limit in _limits(test, counters):
            yield from lengths_of_limit(script, limit)


def lengths_of_limit(script: ScriptModel, limit: ast.expr) -> list[Length]:
    """The lengths from which a limit is computed; none where it may be something else, a configured number."""
    value, far = limit, 0
    while isinstance(value, (ast.Name, ast.Attribute)) and far < _FARTHEST:
        given = list(given_to(script, script.module_of(value), value))
        if len(given) != 1 or not isinstance(given[0][0], ast.expr) or given[0][1] not in script.modules:
            return []
        value, far = given[0][0], far + 1
    if any(isinstance(n, (ast.IfExp, ast.BoolOp)) or dotted(n) in ("min", "max") for n in walk(value)):
        return []
    return [
        length
        for length in lengths_read_by(script, script.module_of(value), value)
        if script.entities(length.call.args[0], v.LOADER)
    ]


def _tests(script: ScriptModel, node: ast.AST, seen: frozenset[Scope]) -> Iterator[tuple[ast.expr, set[str]]]:
    """The tests by which the loop over batches around a node ends, each with what goes up by one in its rounds."""
    known = {id(loop) for loop, _ in script.loader_loops}
    loops = script.enclosing_loops(node)
    batches = next((loop for loop in loops if id(loop) in known), None)
    if batches is None:
        scope = script.scope_of(node)
        calls = script.callers(scope) if scope.kind == "function" and scope not in seen else []
        for call in calls:
            yield from _tests(script, call, seen | {scope})
        return
    counters = set(_counters(batches))
    tests = [loop.test for loop in loops if isinstance(loop, ast.While)]
    tests += [
        stmt.test
        for stmt in walk(batches)
        if type(stmt) is ast.If and any(_ends(last) for last in stmt.body[-1:])
    ]
    yield from ((test, counters) for test in tests)


def sources(script: ScriptModel, read: ast.Name | ast.Attribute) -> Iterator[ast.expr]:
    """What a name is assigned in its scope, or passed by callers."""
    scope, name = script.scope_of(read), dotted(read) or ""
    for stmt in script.tree.assigns(name):
        if script.scope_of(stmt) is scope:
            yield stmt.value
    if scope.kind == "function" and name in scope.positional() and name != scope.self_name():
        index = scope.positional().index(str(name)) - (1 if scope.self_name() is not None else 0)
        for caller in script.callers(scope):
            given = call_argument(caller, index, str(name))
            if given is not None:
                yield given


def asked_for_plateau(script: ScriptModel) -> set[Entity]:
    """The schedulers of which the script asks whether they are a `ReduceLROnPlateau`, which steps by validations."""
    return {
        entity
        for call in script.calls()
        if dotted(call.func) == "isinstance"
        and len(call.args) == 2
        and any((dotted(n) or "").endswith("ReduceLROnPlateau") for n in walk(call.args[1]))
        for entity in script.entities(call.args[0], v.SCHEDULER)
    }


def _ends(stmt: ast.stmt) -> bool:
    """Whether a statement leaves the loop, or the program."""
    if isinstance(stmt, ast.Expr) and isinstance(stmt.value, ast.Call):
        return dotted(stmt.value.func) in _EXITS
    return isinstance(stmt, _ENDS)


def _counters(loop: ast.For | ast.AsyncFor | ast.While) -> Iterator[str]:
    """What goes up by one in every round."""
    for stmt in walk(loop):
        if type(stmt) is ast.AugAssign and isinstance(stmt.op, ast.Add):
            name = dotted(stmt.target)
            if name is not None and isinstance(stmt.value, ast.Constant) and stmt.value.value == 1:
                yield name


def _limits(test: ast.expr, counters: set[str]) -> Iterator[ast.expr]:
    """What a test, or a part of one, compares a counter with, where no counter sets that."""
    if isinstance(test, ast.BoolOp):
        for part in test.values:
            yield from _limits(part, counters)
    if not isinstance(test, ast.Compare) or len(test.ops) != 1 or not isinstance(test.ops[0], _ORDER):
        return
    sides = [test.left, test.comparators[0]]
    counted = [side for side in sides if _counted(side) in counters]
    limits = [side for side in sides if not names_in(side) & {c.split(".")[0] for c in counters}]
    if len(counted) == 1 and len(limits) == 1:
        yield limits[0]


def _counted(side: ast.expr) -> str | None:
    """The name in `step` or `step + 1`."""
    if isinstance(side, ast.BinOp) and isinstance(side.right, ast.Constant):
        return dotted(side.left) if isinstance(side.op, (ast.Add, ast.Sub)) else None
    return dotted(side)
