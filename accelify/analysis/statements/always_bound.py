"""Whether a name is bound whatever way a run takes: what one branch sets, others cannot read."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from accelify.analysis.syntax import Tree, dotted, target_names

_LEAVING = (ast.Return, ast.Raise, ast.Continue, ast.Break)


def is_surely_bound(tree: Tree, stores: Iterable[ast.Name], offset: int) -> bool:
    """Whether every run that reaches an offset passes some of the places that bind a name.

    Args:
        tree: the tree that contains them.
        stores: the names that are bound, all of one variable.
        offset: where it is read.
    """
    return any(_is_gone_through(tree, store, offset) for store in stores if tree.start(store) <= offset)


def _is_gone_through(tree: Tree, store: ast.Name, offset: int) -> bool:
    branches = [
        node
        for node in tree.ancestors(store)
        if isinstance(node, ast.If) and not tree.start(node) <= offset < tree.end(node)
    ]
    # The outermost of them: what every path through it binds is bound after it.
    return not branches or always_binds(branches[-1], store.id)


def always_binds(stmt: ast.stmt, name: str) -> bool:
    """Whether a name is bound again whatever way is taken through a statement."""
    if isinstance(stmt, ast.Assign):
        return any(name in target_names(t) for t in stmt.targets)
    if isinstance(stmt, ast.AnnAssign):
        return stmt.value is not None and name in target_names(stmt.target)
    if isinstance(stmt, ast.If):
        return all(_binds_or_leaves(part, name) for part in (stmt.body, stmt.orelse))
    if isinstance(stmt, (ast.With, ast.AsyncWith)):
        return any(always_binds(s, name) for s in stmt.body)
    if isinstance(stmt, ast.Try):
        parts = [[*stmt.body, *stmt.orelse], *(handler.body for handler in stmt.handlers)]
        return all(_binds_or_leaves(part, name) for part in parts)
    return False


def _binds_or_leaves(block: list[ast.stmt], name: str) -> bool:
    return leaves(block) or any(always_binds(stmt, name) for stmt in block)


def leaves(block: list[ast.stmt]) -> bool:
    """Whether a run never reaches what comes after a block."""
    return bool(block) and (isinstance(block[-1], _LEAVING) or _ends_the_run(block[-1]))


def _ends_the_run(stmt: ast.stmt) -> bool:
    call = stmt.value if isinstance(stmt, ast.Expr) else None
    return isinstance(call, ast.Call) and dotted(call.func) in ("exit", "quit", "sys.exit", "os._exit")
