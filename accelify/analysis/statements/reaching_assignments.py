"""Which assignments of a name reach a place of the same function: names that are used again for something new."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from accelify.analysis.syntax import Node, Tree, names_in, stores_in, target_names, walk

if TYPE_CHECKING:
    from accelify.analysis.script import ScriptModel

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


def reaching_assignments(script: ScriptModel, read: ast.Name) -> list[ast.Assign] | None:
    """The plain assignments `name = ...` of which one has set the value of a name where it is read.

    None where that is not known: the name is bound elsewhere, by another statement, or from within a function.
    """
    scope = script.scope_of(read)
    if scope.resolve(read.id) is not scope or _set_within(script, read.id):
        return None
    stores = [node for node in script.tree.writes(read.id) if script.scope_of(node) is scope]
    made = [script.tree.parent(store) for store in stores]
    plain = [s for s in made if isinstance(s, ast.Assign) and len(s.targets) == 1]
    if len(plain) != len(stores):
        return None
    found: list[ast.Assign] = []
    for block, index, owner in _blocks_around(script.tree, read):
        for stmt in reversed(block[:index]):
            if isinstance(stmt, ast.Assign) and any(stmt is s for s in plain):
                return [*found, stmt]
            found += _inside(stmt, plain)
        if isinstance(owner, (ast.For, ast.AsyncFor, ast.While, ast.Try, ast.ExceptHandler)):
            # What a loop assigns after the place is there in its next round; a `try` can end anywhere.
            whole = script.tree.statement(owner) if isinstance(owner, ast.ExceptHandler) else owner
            found += [s for s in _inside(whole, plain) if s not in found]
    return None


def last_assignment(tree: Tree, read: ast.Name) -> ast.Assign | None:
    """The assignment that is sure to have set the value of a name where it is read; None where it can be another."""
    for block, index, _ in _blocks_around(tree, read):
        for stmt in reversed(block[:index]):
            if isinstance(stmt, ast.Assign) and read.id in (n for t in stmt.targets for n in target_names(t)):
                return stmt
            if read.id in stores_in(stmt):
                return None
    return None


def made_of(tree: Tree, read: ast.Name) -> dict[ast.stmt, bool]:
    """The assignments, augmented ones too, that a name's value is made of where it is read, in their order.

    What is assigned again is left out (`loss` of an inner loop), unless the new value is computed from it. True for
    those that are sure to be made, after what comes before them.
    """
    found: dict[ast.stmt, bool] = {}
    for block, index, owner in _blocks_around(tree, read):
        given, passes = _at_end(tree, block[:index], read.id)
        found |= dict.fromkeys(given, False) | {s: True for s in given if any(s is own for own in block)}
        if not passes:
            break
        if isinstance(owner, (ast.For, ast.AsyncFor, ast.While, ast.Try, ast.ExceptHandler)):
            whole = tree.statement(owner) if isinstance(owner, ast.ExceptHandler) else owner
            assert isinstance(whole, ast.stmt)
            found = dict.fromkeys(tree.assigned_in(whole, read.id), False) | found
    return {stmt: found[stmt] for stmt in sorted(found, key=lambda s: (s.lineno, s.col_offset))}


def _at_end(tree: Tree, block: list[ast.stmt], name: str) -> tuple[list[ast.stmt], bool]:
    """The assignments of a name's value after some statements, and whether it can be one from before them."""
    found: list[ast.stmt] = []
    for stmt in reversed(block):
        given, passes = _after(tree, stmt, name)
        found += given
        if not passes:
            return found, False
    return found, True


def _after(tree: Tree, stmt: ast.stmt, name: str) -> tuple[list[ast.stmt], bool]:
    assigned = tree.assigned_in(stmt, name)
    if not assigned and not isinstance(stmt, (ast.If, ast.With, ast.AsyncWith)):
        return [], True
    if isinstance(stmt, ast.Assign):
        return [stmt], name in names_in(stmt.value)
    if isinstance(stmt, (ast.With, ast.AsyncWith)):
        return _at_end(tree, stmt.body, name)
    if isinstance(stmt, ast.If):
        branches = [_at_end(tree, b, name) for b in (stmt.body, stmt.orelse) if not _returns(b)]
        return [s for given, _ in branches for s in given], any(passes for _, passes in branches)
    return assigned, True


def _returns(block: list[ast.stmt]) -> bool:
    return bool(block) and isinstance(block[-1], (ast.Return, ast.Raise))


def _inside(outer: Node, statements: list[ast.Assign]) -> list[ast.Assign]:
    within = set(walk(outer)) if not isinstance(outer, _FUNCTIONS) else set()
    return [stmt for stmt in statements if stmt in within]


def _blocks_around(tree: Tree, node: Node) -> Iterator[tuple[list[ast.stmt], int, Node]]:
    """The blocks around a node up to its function, innermost first: each with the index of the statement around it."""
    stmt: Node = tree.statement(node)
    while True:
        owner, _, block = tree.block_of(stmt)
        yield block, next(i for i, s in enumerate(block) if s is stmt), owner
        if isinstance(owner, (*_FUNCTIONS, ast.Module)):
            return
        stmt = tree.statement(owner)  # of an `except` or a `case`, the whole


def _set_within(script: ScriptModel, name: str) -> bool:
    return any(name in node.names for node in script.tree.nodes(ast.Global, ast.Nonlocal))
