"""Files that are opened for reading too (`open(path, "w+")`) and that the script only writes to."""

from __future__ import annotations

import ast

from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import Node

_WRITING = frozenset({"write", "writelines", "flush", "close"})


def is_only_written(script: ScriptModel, call: ast.Call) -> bool:
    """Whether all that a script does with the file that a call opens is to write to it and to close it."""
    stmt = script.tree.parent(call)
    target: Node | None = None
    if isinstance(stmt, ast.Assign) and len(stmt.targets) == 1:
        target = stmt.targets[0]
    elif isinstance(stmt, ast.withitem):
        target = stmt.optional_vars
    if not isinstance(target, ast.Name):
        return False
    scope = script.scope_of(target).resolve(target.id)
    return scope is not None and all(_writes(script, read) for read in script.reads(target.id, scope))


def _writes(script: ScriptModel, read: ast.Name) -> bool:
    parent = script.tree.parent(read)
    if isinstance(parent, ast.keyword):  # print(..., file=log)
        call = script.tree.parent(parent)
        return (
            parent.arg == "file"
            and isinstance(call, ast.Call)
            and script.qualname(call.func) == "builtins.print"
        )
    return (
        isinstance(parent, ast.Attribute)
        and parent.attr in _WRITING
        and isinstance(script.tree.parent(parent), ast.Call)
    )


__all__ = ["is_only_written"]
