"""Which of several definitions of one name is valid where a module's statements read it.

Cells of a notebook define `evaluate` again, a little different, and each call means the one above it. What a function
reads may run after any of them.
"""

from __future__ import annotations

import ast
import bisect

from accelify.analysis.scopes import Scope
from accelify.analysis.syntax import Tree

_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_LATER = (ast.Lambda, ast.GeneratorExp)


def own_definitions(tree: Tree, scope: Scope) -> tuple[dict[ast.AST, str], dict[ast.Name, str]]:
    """The definitions of a module that share a name, and its reads of them, each with a unique name.

    Names that are bound by anything else than a definition at the top of the module are left out.

    Args:
        tree: the module.
        scope: its outermost scope.
    """
    found: dict[str, list[ast.stmt]] = {}
    for stmt in tree.module.body:
        if isinstance(stmt, _DEFINITIONS):
            found.setdefault(stmt.name, []).append(stmt)
    several = {name: stmts for name, stmts in found.items() if len(stmts) > 1}
    if not several:
        return {}, {}
    top = {stmt for stmts in several.values() for stmt in stmts}
    reads: list[ast.Name] = []
    for node in scope.nodes:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            reads.append(node)
        elif node not in top:
            for name in _bound(node):
                several.pop(name, None)
    for inner in scope.children:
        for name in getattr(scope.children[inner], "globals", ()):
            several.pop(name, None)
    own: dict[ast.AST, str] = {
        stmt: f"{name} {stmt.lineno}" for name, stmts in several.items() for stmt in stmts
    }
    starts = {name: [tree.start(stmt) for stmt in stmts] for name, stmts in several.items()}
    meant: dict[ast.Name, str] = {}
    for read in reads:
        if read.id not in several or any(isinstance(a, _LATER) for a in tree.ancestors(read)):
            continue
        place = bisect.bisect_left(starts[read.id], tree.start(read))
        if place:
            meant[read] = own[several[read.id][place - 1]]
    return own, meant


def _bound(node: ast.AST) -> list[str]:
    """The names that a node of a module's statements binds."""
    if isinstance(node, ast.Name):
        return [node.id]
    if isinstance(node, _DEFINITIONS):
        return [node.name]
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return [alias.asname or alias.name.partition(".")[0] for alias in node.names]
    return []
