"""Names that a script only shows: `print("Using:", device)` shows a device, and places nothing there."""

from __future__ import annotations

import ast

from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import Tree

_SHOWING = frozenset("print str repr format info debug warning write".split())


def is_shown(tree: Tree, read: ast.expr) -> bool:
    """Whether a read of a name does nothing but show what it holds."""
    for ancestor in tree.ancestors(read):
        if isinstance(ancestor, ast.stmt):
            return isinstance(ancestor, ast.Expr)
        if isinstance(ancestor, ast.Call):
            func = ancestor.func
            called = func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")
            if called not in _SHOWING:
                return False
    return False


def is_only_shown(script: ScriptModel, target: ast.expr) -> bool:
    """Whether what is assigned to a name is read to be shown, and for nothing else."""
    if not isinstance(target, ast.Name):
        return False
    owner = script.scope_of(target).resolve(target.id)
    reads = script.reads(target.id, owner) if owner is not None else []
    return bool(reads) and all(is_shown(script.tree, read) for read in reads)
