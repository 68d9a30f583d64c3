"""The edit verbs: what is to become of nodes of a script, recorded before anything is changed.

An edit names nodes of the tree that was read, never places in its text; its first field is the node that it is recorded
at. Code comes in pieces, strings and nodes in
turns; a node represents what is there, with whatever other edits make of it:

    replace(call, "next(", call.func.value, ")")        loader.next()   ->  next(loader)
    replace(value, f"{accelerator}.reduce(", value, ")")   loss         ->  accelerator.reduce(loss)
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import TypeAlias

from accelify.analysis.syntax import Tree
from accelify.writer.errors import EditError as EditError

Piece: TypeAlias = str | ast.expr | ast.stmt
HOLE = "_accelify_hole_"
"""Begins the name that stands in the place of a node in a text, until it is put there."""
_PLAIN_STRING = re.compile(r"([rRuU]?)(\"{3}|'{3}|\"|')(.*)\2", re.DOTALL)


@dataclass(frozen=True)
class Replace:
    """Put code in the place of a node.

    Where the node itself is among the pieces it is put around it. Of several such edits of one node the one with the
    lowest `order` comes outermost. One that is `yielding` is left out where another edit takes its node away.
    """

    node: ast.AST
    pieces: tuple[Piece, ...]
    order: int = 0
    yielding: bool = False

    @property
    def is_around(self) -> bool:
        """Whether the node stays, with something around it."""
        return any(piece is self.node for piece in self.pieces)


@dataclass(frozen=True)
class AddArgument:
    """Add an argument to a call: `text` as it is to be written, such as `disable=True`.

    At the end, or before all others (`first`), or after one of them (`after`).
    """

    call: ast.Call
    text: str
    first: bool = False
    after: ast.AST | None = None


@dataclass(frozen=True)
class DropArgument:
    """Take an argument out of a call, a base out of a class, an element out of a list: with its comma."""

    owner: ast.AST
    item: ast.AST


@dataclass(frozen=True)
class AddParameter:
    """Add a parameter to a function: the first, or the second one of a method, or with a `default` the last.

    `annotation` is its type; empty for none.
    """

    function: ast.FunctionDef | ast.AsyncFunctionDef
    name: str
    after: ast.arg | None = None
    default: str = ""
    annotation: str = ""


@dataclass(frozen=True)
class Delete:
    """Take a whole statement out, its lines with it; `pass` stays where a block would be left empty.

    With `blank_lines` all that follow it go, too.
    """

    statement: ast.stmt
    blank_lines: bool = False


@dataclass(frozen=True)
class Unwrap:
    """Take a header away from around its block, which then is in its place."""

    statement: ast.With


@dataclass(frozen=True)
class InsertBefore:
    """Put lines before a statement, at its indentation. Lower `order` comes first at the same place.

    With `above_comment` they go above a comment that heads the statement, with a blank line between. `taken` are
    expressions out of it, which stand in the holes of the lines as other edits make them.
    """

    statement: ast.stmt
    lines: tuple[str, ...]
    order: int = 0
    above_comment: bool = False
    taken: tuple[ast.AST, ...] = ()


@dataclass(frozen=True)
class InsertAfter:
    """Put lines after a statement, at its indentation."""

    statement: ast.stmt
    lines: tuple[str, ...]
    order: int = 0


@dataclass(frozen=True)
class PutUnder:
    """Put neighbouring statements of one block under a header line (`if ...:` or `with ...:`).

    Calls that no line can be above, as in `if x: f()`, are joined with the test: `if x: main and f()`.
    `otherwise` are lines for the `else` of that header.
    """

    first: ast.stmt
    last: ast.stmt
    header: str
    otherwise: tuple[str, ...] = ()


Edit: TypeAlias = (
    Replace
    | AddArgument
    | DropArgument
    | AddParameter
    | Delete
    | Unwrap
    | InsertBefore
    | InsertAfter
    | PutUnder
)


def replace(node: ast.AST, *pieces: Piece, order: int = 0, yielding: bool = False) -> Replace:
    """Put code in the place of a node, or around it."""
    return Replace(node, pieces, order, yielding)


def insert_before(statement: ast.stmt, *pieces: Piece) -> InsertBefore:
    """Put a line before a statement that is made of text and of expressions out of it, which other edits replace."""
    line, taken = woven(pieces)
    return InsertBefore(statement, (line,), taken=tuple(taken))


def woven(pieces: Sequence[Piece]) -> tuple[str, list[ast.expr | ast.stmt]]:
    """The text of some pieces with holes in the places of the nodes among them, and those nodes."""
    nodes = [piece for piece in pieces if not isinstance(piece, str)]
    numbers = iter(range(len(nodes)))
    return "".join(p if isinstance(p, str) else f"{HOLE}{next(numbers)}_" for p in pieces), nodes


def keep_receiver(call: ast.Call) -> Replace:
    """Cut a method call down to what it is called on: `x.cuda()` becomes `x`."""
    assert isinstance(call.func, ast.Attribute)
    return Replace(call, (call.func.value,))


def say(tree: Tree, literal: ast.Constant, text: str) -> Replace | None:
    """Replace the text of a string, in its quotes; None where it is no plain string."""
    found = _PLAIN_STRING.fullmatch(tree.segment(literal))
    if found is None or found[3] != literal.value:
        return None
    return Replace(literal, (f"{found[1]}{found[2]}{text}{found[2]}",))


def todo(tree: Tree, node: ast.AST, code: str, message: str) -> InsertBefore:
    """A `# TODO(accelify CODE): message` comment above the statement of a node.

    Raises:
        EditError: where no statement around the node has a line for itself.
    """
    stmt = tree.statement(node)
    while not tree.own_line(stmt) or tree.is_elif(stmt):
        parent = tree.parent(stmt)
        if not isinstance(parent, ast.stmt):
            raise EditError("no separate line")
        stmt = parent
    return InsertBefore(stmt, (f"# TODO(accelify {code}): {message}",), order=400)


def node_of(edit: Edit) -> ast.AST:
    """The node that an edit is recorded at."""
    node: ast.AST = getattr(edit, fields(edit)[0].name)
    return node


def place_of(tree: Tree, edit: Edit) -> int:
    """The byte at which an edit begins to show, for reports."""
    match edit:
        case InsertAfter(statement=stmt):
            return tree.line_end(tree.end(stmt))
        case AddParameter(function=function):
            return tree.line_starts[function.lineno - 1] + function.col_offset
        case AddArgument(call=call):
            return tree.end(call.func)
        case DropArgument(item=item):
            return tree.start(item)
    return tree.start(node_of(edit))


def text_of(edit: Edit) -> str:
    """The code that an edit brings, one line below the other."""
    match edit:
        case Replace(pieces=pieces):
            return "\n".join(piece for piece in pieces if isinstance(piece, str))
        case AddArgument(text=text) | PutUnder(header=text):
            return text
        case InsertBefore(lines=lines) | InsertAfter(lines=lines):
            return "\n".join(lines)
    return ""


def written(tree: Tree, node: ast.expr, edits: Iterable[Edit]) -> str:
    """The source of an expression with some edits made, for lines that take it elsewhere.

    Raises:
        EditError: when they cannot be made.
    """
    from accelify.writer.writing import expression_with

    return expression_with(tree, node, edits)
