"""Branches that no call of their function takes, by the constants that all calls pass, and lists of None."""

from __future__ import annotations

import ast

from accelify.analysis.scopes import Scope
from accelify.analysis.script import ScriptModel
from accelify.analysis.statements.branches import decided
from accelify.analysis.syntax import call_argument, hides_arguments, is_constant, names_in, walk


def asks_for_none(node: ast.AST | None) -> bool:
    """`x is None`, `None is not x`, `x == None`."""
    if not isinstance(node, ast.Compare) or len(node.ops) != 1:
        return False
    return isinstance(node.ops[0], (ast.Is, ast.IsNot, ast.Eq, ast.NotEq)) and any(
        is_constant(side, None) for side in (node.left, *node.comparators)
    )


def is_ruled_out(script: ScriptModel, node: ast.AST, function: Scope) -> bool:
    """Whether a node is in a branch of a function that no call takes: after `if dim is None:`, for example."""
    inner: ast.AST | None = None
    around = script.interpreter.module_of(function).tree.ancestors(node)
    for ancestor in around if function.kind == "function" else ():
        if ancestor is function.node:
            break
        if isinstance(ancestor, ast.If) and inner is not None:
            taken = decided(ancestor.test, _constants(script, function, ancestor.test))
            if taken is not None and inner in (ancestor.orelse if taken else ancestor.body):
                return True
        inner = ancestor
    return False


def _constants(script: ScriptModel, function: Scope, test: ast.expr) -> dict[str, object]:
    """The parameters in a test that are one constant in all calls, but for those that are bound again before it."""
    tree = script.interpreter.module_of(function).tree
    inside = set(walk(tree.statement(test)))
    stored = {n.id for n in function.of_type(ast.Name) if not isinstance(n.ctx, ast.Load) and n not in inside}
    names = names_in(test) - stored
    given = {a.arg: _given(script, function, a.arg) for a in function.parameters() if a.arg in names}
    # For a test whether it is None, any of several numbers will do.
    asked = asks_for_none(test)
    return {
        name: min(values, key=str)
        for name, values in given.items()
        if values and (len(values) == 1 or (asked and None not in values))
    }


def _given(script: ScriptModel, function: Scope, name: str) -> set[object] | None:
    """The constants that the calls of a function pass for a parameter; None where one passes something else."""
    calls = script.interpreter.callers.get(function, [])
    if not calls or not isinstance(function.node, ast.FunctionDef):
        return None
    positional, defaults = function.positional(), {a.arg: d for a, d in function.defaults()}
    index = positional.index(name) - (function.self_name() is not None) if name in positional else -1
    found: set[object] = set()
    for _, call in calls:
        hidden = hides_arguments(call)
        given = call_argument(call, index, name) or defaults.get(name)
        if hidden or given is None:
            return None
        if not isinstance(given, ast.Constant):
            return None
        found.add(given.value)
    return found


def are_none(node: ast.expr) -> bool:
    """Whether a list holds None alone: `[None] * n`, `[None for _ in losses]`."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        return are_none(node.left) or are_none(node.right)
    if isinstance(node, (ast.List, ast.Tuple)):
        return all(is_constant(e, None) for e in node.elts)
    if isinstance(node, (ast.ListComp, ast.GeneratorExp)):
        return is_constant(node.elt, None)
    return False
