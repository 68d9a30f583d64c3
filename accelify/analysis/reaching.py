"""Which assignments of a name reach a place of the same function: names that are used again for something new."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from accelify.analysis.syntax import Node, walk

if TYPE_CHECKING:
    from accelify.analysis.script import ScriptModel

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


def reaching_assignments(script: ScriptModel, read: ast.Name) -> list[ast.Assign] | None:
    """The plain assignments `name = ...` of which one has given a name its value where it is read.

    None where that cannot be told: the name is bound elsewhere, by another statement, or from within a function.
    """
    scope = script.scope_of(read)
    if scope.resolve(read.id) is not scope or _set_within(script, read.id):
        return None
    stores = [
        node
        for node in script.tree.nodes(ast.Name)
        if node.id == read.id and not isinstance(node.ctx, ast.Load) and script.scope_of(node) is scope
    ]
    made = [script.tree.parent(store) for store in stores]
    plain = [s for s in made if isinstance(s, ast.Assign) and len(s.targets) == 1]
    if len(plain) != len(stores):
        return None
    found: list[ast.Assign] = []
    for block, index, owner in _blocks_around(script, read):
        for stmt in reversed(block[:index]):
            if isinstance(stmt, ast.Assign) and any(stmt is s for s in plain):
                return [*found, stmt]
            found += _inside(stmt, plain)
        if isinstance(owner, (ast.For, ast.AsyncFor, ast.While, ast.Try, ast.ExceptHandler)):
            # What a loop assigns behind the place is there in its next round; a `try` can end anywhere.
            whole = script.tree.statement(owner) if isinstance(owner, ast.ExceptHandler) else owner
            found += [s for s in _inside(whole, plain) if s not in found]
    return None


def _inside(outer: Node, statements: list[ast.Assign]) -> list[ast.Assign]:
    within = set(walk(outer)) if not isinstance(outer, _FUNCTIONS) else set()
    return [stmt for stmt in statements if stmt in within]


def _blocks_around(script: ScriptModel, node: Node) -> Iterator[tuple[list[ast.stmt], int, Node]]:
    """The blocks around a node up to its function, innermost first: each with the index of the statement around it."""
    stmt: Node = script.tree.statement(node)
    while True:
        owner, _, block = script.tree.block_of(stmt)
        yield block, next(i for i, s in enumerate(block) if s is stmt), owner
        if isinstance(owner, (*_FUNCTIONS, ast.Module)):
            return
        stmt = script.tree.statement(owner)  # of an `except` or a `case`, the whole


def _set_within(script: ScriptModel, name: str) -> bool:
    return any(name in node.names for node in script.tree.nodes(ast.Global, ast.Nonlocal))
