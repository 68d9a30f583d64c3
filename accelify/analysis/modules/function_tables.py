"""Tables of functions that are only called: `trainers = {"a": train_a, "b": train_b}`, `trainers[name](model)`."""

from __future__ import annotations

import ast
from collections.abc import Container

from accelify.analysis.scopes import Scope
from accelify.analysis.script import ScriptModel
from accelify.analysis.values import Function


def stands_in_called_table(script: ScriptModel, node: ast.expr, alike: Container[Scope]) -> bool:
    """Whether a function is named in a dictionary or list of which one is taken only to call it there.

    Args:
        script: its model.
        node: where the function is named.
        alike: the functions that take what this one takes. Every function of the table has to be one of them.
    """
    display = script.tree.parent(node)
    functions = _values(display)
    stmt = script.tree.parent(display) if functions and display is not None else None
    if node not in functions or not isinstance(stmt, ast.Assign) or stmt.value is not display:
        return False
    target = stmt.targets[0]
    if len(stmt.targets) != 1 or not isinstance(target, ast.Name):
        return False
    scope = script.scope_of(stmt).resolve(target.id)
    if scope is None or not all(_is_one_of(script, one, alike) for one in functions):
        return False
    return all(_is_called(script, read) for read in script.reads(target.id, scope))


def _values(display: ast.AST | None) -> list[ast.expr]:
    if isinstance(display, ast.Dict):
        return display.values
    return display.elts if isinstance(display, (ast.List, ast.Tuple)) else []


def _is_one_of(script: ScriptModel, node: ast.expr, alike: Container[Scope]) -> bool:
    contained = script.values(node)
    return bool(contained) and all(isinstance(w, Function) and w.scope in alike for w in contained)


def _is_called(script: ScriptModel, read: ast.expr) -> bool:
    """Whether a table is read to call what is at a place of it, `table[name](...)`."""
    taken = script.tree.parent(read)
    call = script.tree.parent(taken) if isinstance(taken, ast.Subscript) and taken.value is read else None
    return isinstance(call, ast.Call) and call.func is taken and bool(script.callees(call))


__all__ = ["stands_in_called_table"]
