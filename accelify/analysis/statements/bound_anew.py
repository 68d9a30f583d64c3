"""Names that are read after a place, and not assigned another value before that."""

from __future__ import annotations

import ast

from accelify.analysis.scopes import Scope
from accelify.analysis.script import ScriptModel


def is_read_after(script: ScriptModel, scope: Scope, name: str, end: int) -> bool:
    """Whether the value of a name at a place may be read after it.

    Args:
        script: its model.
        scope: where the place is.
        name: of a variable.
        end: the place, as an offset.
    """
    owner = scope.resolve(name)
    later = [r for r in script.reads(name, owner) if script.tree.start(r) > end] if owner is not None else []
    return not all(_bound_anew(script, read, end) for read in later)


def _bound_anew(script: ScriptModel, read: ast.Name, end: int) -> bool:
    """Whether a name is sure to have the value that a statement after a place assigned, where it is read."""
    tree, owner = script.tree, script.scope_of(read).resolve(read.id)
    return any(
        end < tree.start(write) < tree.start(read)
        and script.scope_of(write).resolve(read.id) is owner
        and _comes_first(script, write, read)
        for write in tree.writes(read.id)
    )


def _comes_first(script: ScriptModel, write: ast.Name, read: ast.Name) -> bool:
    tree, stmt = script.tree, script.tree.statement(write)
    around = [a for a in tree.ancestors(read) if isinstance(a, ast.stmt)]
    if isinstance(stmt, (ast.For, ast.AsyncFor, ast.With, ast.AsyncWith)):
        return stmt in around[1:]  # in its body
    if not isinstance(stmt, (ast.Assign, ast.AnnAssign)) or stmt in around:
        return False
    return any(one in tree.block_of(stmt)[2] for one in around)
