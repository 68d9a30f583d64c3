"""Calls of a function that trains which train nothing: `step(x, y, net, optimizer=None)`, `step(x, y, train=False)`."""

from __future__ import annotations

import ast
from collections.abc import Set
from typing import TYPE_CHECKING

from accelify.analysis.scopes import Scope
from accelify.analysis.statements.branches import Constants, constants_of, decided
from accelify.analysis.syntax import Node

if TYPE_CHECKING:
    from accelify.analysis.script import ScriptModel

_OF_OPTIMIZERS = frozenset({"step", "zero_grad"})
_ENDING = (ast.Return, ast.Raise, ast.Continue)


def leading_to_backward(script: ScriptModel, idle: Set[ast.Call] = frozenset()) -> set[Scope]:
    """The scopes of a script's backwards, with those that call them by other calls than `idle` ones."""
    reached = {b.scope for b in script.backwards}
    queue = list(reached)
    while queue:
        scope = queue.pop()
        outer: list[Scope] = [script.scope_of(call) for call in script.callers(scope) if call not in idle]
        if scope.parent is not None and scope.kind == "function" and scope.parent.kind == "function":
            outer.append(scope.parent)
        for other in outer:
            if other not in reached:
                reached.add(other)
                queue.append(other)
    return reached


def idle_calls(script: ScriptModel, training: Set[Scope]) -> set[ast.Call]:
    """Those of the calls of some functions that reach no backward, by the constants that they pass.

    Args:
        script: its model.
        training: the functions from which a backward is reached.
    """
    found: set[ast.Call] = set()
    for scope in training:
        for call in script.callers(scope) if scope.kind == "function" else ():
            callees = script.callees(call) & training
            if call not in found and all(_is_idle(script, call, callee, training) for callee in callees):
                found.add(call)
    return found


def _is_idle(script: ScriptModel, call: ast.Call, callee: Scope, training: Set[Scope]) -> bool:
    stored = {n.id for n in callee.of_type(ast.Name) if isinstance(n.ctx, ast.Store)}
    constants = {n: value for n, value in constants_of(callee, call).items() if n not in stored}
    if not constants:
        return False
    ways: list[Node] = [b.call for b in script.backwards if b.scope is callee]
    ways += [c for c in callee.calls if script.callees(c) & training]
    inner = any(s is not callee and callee in _around(s) for s in training)
    return bool(ways) and not inner and all(_is_ruled_out(script, callee, way, constants) for way in ways)


def _around(scope: Scope) -> list[Scope]:
    found = []
    while scope.parent is not None:
        scope = scope.parent
        found.append(scope)
    return found


def _is_ruled_out(script: ScriptModel, function: Scope, way: Node, constants: Constants) -> bool:
    """Whether a function does not reach a node, or would fail there: `None.step()`."""
    tree, child = script.tree, way
    for ancestor in tree.ancestors(way):
        if isinstance(child, ast.stmt):
            block = tree.block_of(child)[2]
            before = block[: block.index(child)] if child in block else []
            if any(isinstance(s, ast.If) and _leaves(s, constants) for s in before):
                return True
            if any(_fails(s, constants) for s in block):
                return True
        if ancestor is function.node:
            return False
        if isinstance(ancestor, ast.If):
            taken = decided(ancestor.test, constants)
            if (taken is False and child in ancestor.body) or (taken is True and child in ancestor.orelse):
                return True
        child = ancestor
    return False


def _leaves(branch: ast.If, constants: Constants) -> bool:
    taken = decided(branch.test, constants)
    way = branch.body if taken is True else branch.orelse if taken is False else []
    return bool(way) and isinstance(way[-1], _ENDING)


def _fails(stmt: ast.stmt, constants: Constants) -> bool:
    """`optimizer.step()` of what is None."""
    call = stmt.value if isinstance(stmt, ast.Expr) else None
    return (
        isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr in _OF_OPTIMIZERS
        and isinstance(call.func.value, ast.Name)
        and constants.get(call.func.value.id, ...) is None
    )
