"""What grows in a loop: expressions that add something to the existing value, and what every round runs."""

from __future__ import annotations

import ast
from collections.abc import Iterator

# Calls that put something to what is there already.
_GROWING = frozenset(
    "max min maximum minimum cat concat concatenate stack append vstack hstack logical_or".split()
)


def is_growth(value: ast.expr) -> bool:
    """Whether an expression puts something to what is there: a sum, the larger of two, a longer tensor."""
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and not value.args:
        value = value.func.value
    if isinstance(value, ast.Call):
        last = value.func.attr if isinstance(value.func, ast.Attribute) else getattr(value.func, "id", "")
        return last in _GROWING or len(value.args) > 1
    return isinstance(value, ast.BinOp)


def always_run(stmt: ast.stmt) -> Iterator[ast.AST]:
    """A statement of a loop and what runs with it in every round: a window is set back in some of them only."""
    yield stmt
    if isinstance(stmt, (ast.With, ast.AsyncWith, ast.Try)):
        for inner in stmt.body:
            yield from always_run(inner)
