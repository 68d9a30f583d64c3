"""Loops that count their rounds: `for i, batch in enumerate(loader)`, or over a name that holds what counts them."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from accelify.analysis.statements.reaching_assignments import reaching_assignments
from accelify.analysis.syntax import walk

if TYPE_CHECKING:
    from accelify.analysis.script import ScriptModel


def is_enumerated(script: ScriptModel, iterated: ast.expr) -> bool:
    """Whether a loop iterates over `enumerate(...)`, within a progress bar or not, or through a name that holds one."""
    if any(isinstance(n, ast.Name) and n.id == "enumerate" for n in walk(iterated)):
        return True
    made = reaching_assignments(script, iterated) if isinstance(iterated, ast.Name) else None
    return bool(made) and all(
        any(isinstance(n, ast.Name) and n.id == "enumerate" for n in walk(stmt.value)) for stmt in made or ()
    )


def counter_of(script: ScriptModel, loop: ast.AST) -> str | None:
    """The name that counts the rounds of such a loop: the same number on every process."""
    if not isinstance(loop, (ast.For, ast.AsyncFor)) or not isinstance(loop.target, ast.Tuple):
        return None
    first = loop.target.elts[0] if len(loop.target.elts) == 2 else None
    return first.id if isinstance(first, ast.Name) and is_enumerated(script, loop.iter) else None
