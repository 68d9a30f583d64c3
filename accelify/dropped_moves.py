"""Moves to a device that `convert` dropped, as prepare places what they moved: where they stood, and in what."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from accelify.analysis.syntax import Tree

_LOOPED = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.Lambda)
_PLAIN = (ast.Name, ast.Attribute, ast.Subscript)
_SCOPES = (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
# How many statements beside one are remembered.
_MOST_BESIDE = 6


class MovePlace(NamedTuple):
    """Where a move ends in the original: the file, the line, and the column in characters, from 1."""

    path: str
    line: int
    column: int


class DroppedMove(NamedTuple):
    """A move that is gone.

    Args:
        place: in the original.
        first: the first line of its statement.
        last: the last line of its statement.
        receiver: what was moved, without the moves in it.
        text: what names it, where all of its statement is gone; empty where nothing does.
        beside: the first lines of statements beside its own, the nearest ones first, each with whether its own stood
            before it.
    """

    place: MovePlace
    first: int
    last: int
    receiver: str
    text: str
    beside: tuple[tuple[int, bool], ...]


def place_of(tree: Tree, call: ast.Call) -> MovePlace:
    """Where a move stands."""
    return MovePlace(*tree.end_place(call))


def dropped_moves(tree: Tree, calls: Iterable[ast.Call]) -> list[DroppedMove]:
    """What is to be known of moves that are gone.

    Args:
        tree: the original.
        calls: the moves in it.
    """
    gone = {call for call in calls if isinstance(call.func, ast.Attribute)}
    return [_dropped(tree, call, gone) for call in tree.in_order(gone)]


def _dropped(tree: Tree, call: ast.Call, gone: set[ast.Call]) -> DroppedMove:
    stmt = tree.statement(call)
    node: ast.expr = call
    while isinstance(node, ast.Call) and node in gone and isinstance(node.func, ast.Attribute):
        node = node.func.value
    receiver, text = ast.unparse(_Without(gone).visit(_copy(node))), ""
    around = [*_up_to(tree, call, stmt)]
    if isinstance(stmt, ast.Assign) and (not isinstance(node, _PLAIN) or _binds(around)):
        text = ast.unparse(stmt.targets[0]) if isinstance(stmt.targets[0], _PLAIN) else ""
    elif isinstance(node, _PLAIN) and not _binds(around):
        text = receiver
    looped = next((one for one in around if isinstance(one, (ast.ListComp, ast.GeneratorExp))), None)
    if looped is not None and isinstance(node, ast.Name) and len(looped.generators) == 1:
        # `x, y = [t.to(device) for t in batch]` may be `x, y = batch` now.
        receiver = ast.unparse(looped.generators[0].iter)
    first = _line(tree, stmt)
    last = tree.locate(max(tree.end(stmt) - 1, 0))[1]
    return DroppedMove(place_of(tree, call), first, last, receiver, text, tuple(_beside(tree, stmt)))


def _binds(around: Iterable[ast.AST]) -> bool:
    """Whether names are bound between an expression and its statement."""
    return any(isinstance(one, _LOOPED) for one in around)


def _up_to(tree: Tree, node: ast.AST, stmt: ast.stmt) -> Iterator[ast.AST]:
    parent = tree.parent(node)
    while parent is not None and parent is not stmt:
        yield parent
        parent = tree.parent(parent)


def _line(tree: Tree, stmt: ast.stmt) -> int:
    """The line that a statement has in its file, that of `def` for what has decorators."""
    path_line: int = tree.locate(tree.line_starts[stmt.lineno - 1])[1]
    return path_line


def _beside(tree: Tree, stmt: ast.stmt) -> Iterator[tuple[int, bool]]:
    """Statements that come after one in its block, and before it; then those beside the statement around."""
    while True:
        owner, _, block = tree.block_of(stmt)
        number = block.index(stmt)
        yield from ((_line(tree, one), True) for one in block[number + 1 : number + 1 + _MOST_BESIDE])
        before = block[max(number - _MOST_BESIDE, 0) : number]
        yield from ((_line(tree, one), False) for one in reversed(before))
        if isinstance(owner, _SCOPES) or not isinstance(owner, ast.stmt):
            return
        stmt = owner


def _copy(node: ast.expr) -> ast.expr:
    """The same expression of other nodes, for each the one that it was made of."""

    def made(part: object) -> object:
        if isinstance(part, list):
            return [made(one) for one in part]
        if not isinstance(part, ast.AST):
            return part
        new = type(part)(**{name: made(value) for name, value in ast.iter_fields(part)})
        new.made_of = part  # type: ignore[attr-defined]
        return new

    found = made(node)
    assert isinstance(found, ast.expr)
    return found


class _Without(ast.NodeTransformer):
    """Takes moves out of a copy of an expression."""

    def __init__(self, gone: set[ast.Call]) -> None:
        self.gone = gone

    def visit_Call(self, node: ast.Call) -> ast.AST:
        found = self.generic_visit(node)
        if getattr(node, "made_of", None) in self.gone and isinstance(node.func, ast.Attribute):
            return node.func.value
        return found
