"""Where a script writes out a device, and whether it only compares with it."""

from __future__ import annotations

import ast
from fnmatch import fnmatchcase

from accelify.heap.containers import array_of
from accelify.heap.paths import known_of
from accelify.heap.run import Run
from accelify.heap.values import Value, constant, written_arguments

_KINDS = frozenset({"cpu", "cuda", "hpu", "mps", "npu", "xpu"})


def kind_asked(run: Run, op: ast.cmpop, left: Value, right: Value) -> Value | None:
    """The answer of a comparison that asks for the kind of a process's own device, which all have alike:
    `device == "cpu"`. None for another one."""
    own = any(not array_of(value).is_uniform for value in (left, right))
    if not (own and isinstance(op, ast.Eq | ast.NotEq) and _KINDS & {left.const, right.const}):
        return None
    kind, text = (left, right) if left.const in _KINDS else (right, left)
    # `cuda:*` is no CPU; a script for one process may have that where it finds no GPU.
    if run.checks and text.text and not fnmatchcase(str(kind.const), known_of(text)):
        return constant(isinstance(op, ast.NotEq))
    return Value(type="builtins.bool")


def where_named(run: Run, node: ast.AST, device: object) -> ast.AST:
    """Where a call gets its device from: the one assignment of the name that it is given, or the call itself."""
    words = node.keywords if isinstance(node, ast.Call) else []
    given = [*written_arguments(node), *(one.value for one in words)]
    names = {one.id for one in given if isinstance(one, ast.Name)}
    made = [
        stmt.value
        for stmt in (ast.walk(run.module.tree) if run.module.tree is not None and names else ())
        if isinstance(stmt, ast.Assign) and names & {getattr(one, "id", "") for one in stmt.targets}
    ]
    found = [one for one in made if any(getattr(part, "value", None) == device for part in ast.walk(one))]
    return found[0] if len(made) == len(found) == 1 else node


def is_compared(run: Run, node: ast.AST) -> bool:
    """Whether it is only asked if another device is this one."""
    return any(
        part is node
        for one in (ast.walk(run.module.tree) if run.module.tree is not None else ())
        if isinstance(one, ast.Compare)
        for part in (one.left, *one.comparators)
    )
