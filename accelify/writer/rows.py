"""A block as the rows it is written in: statements, comments and empty lines, one below the other."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import islice
from typing import Any

import libcst as cst

from accelify.writer.errors import EditError


@dataclass(frozen=True)
class Row:
    """One row: a statement without what is above it, or a line with a comment or nothing in it.

    `statements` are those of the script that it is made of; `new` ones were put in.
    """

    node: Any
    statements: tuple[ast.stmt, ...] = field(default=())
    new: bool = False

    @property
    def is_statement(self) -> bool:
        """Whether it is no comment and no empty line."""
        return not isinstance(self.node, cst.EmptyLine)

    @property
    def is_comment(self) -> bool:
        """Whether it is a comment."""
        return isinstance(self.node, cst.EmptyLine) and self.node.comment is not None

    @property
    def is_blank(self) -> bool:
        """Whether it is an empty line."""
        return isinstance(self.node, cst.EmptyLine) and self.node.comment is None

    def with_node(self, node: Any) -> Row:
        """The same row with another statement."""
        return replace(self, node=node)


def rows_of(suite: Any, block: Sequence[ast.stmt]) -> list[Row]:
    """The rows of a block of libcst's, with the statements of the script that they represent."""
    rows = [Row(line) for line in suite.header] if isinstance(suite, cst.Module) else []
    rest = iter(block)
    for node in suite.body:
        rows += [Row(line) for line in node.leading_lines]
        count = len(node.body) if isinstance(node, cst.SimpleStatementLine) else 1
        statements = tuple(islice(rest, count))
        rows.append(Row(node.with_changes(leading_lines=()) if node.leading_lines else node, statements))
    return [*rows, *(Row(line) for line in suite.footer)]


def block_of_rows(rows: Sequence[Row], suite: Any) -> Any:
    """A block of libcst's that is written in some rows."""
    body: list[Any] = []
    above: list[cst.EmptyLine] = []
    for row in rows:
        if not row.is_statement:
            above.append(row.node)
        else:
            body.append(row.node.with_changes(leading_lines=above) if above else row.node)
            above = []
    if not body and not isinstance(suite, cst.Module):
        raise EditError("nothing is left of a block")
    if isinstance(suite, cst.Module):
        return suite.with_changes(header=(), body=body, footer=above)
    return suite.with_changes(body=body, footer=above)


# Comments that tell where something is put, and those that are code, or more than a word about the next line.
_MOVE_COMMENT = re.compile(r"\b(gpus?|cuda|cpu|devices?|variables?|(data)?parallel)\b", re.IGNORECASE)
_SECTION = re.compile(r"# ?(%%|region\b|<)")  # where a cell begins, or what an editor folds
_STORED_COMMENT = re.compile(r"[=(]|# ?%%|TODO|FIXME|noqa|type:|pragma|----|####|\*\*\*\*")


def heading(rows: Sequence[Row], place: int, top: bool, line: str) -> int:
    """The first row of the comment that heads the statement of a row.

    Args:
        rows: of a block.
        place: of the statement.
        top: it is the first of its file, whose comment is about the file.
        line: its text. A comment of a device goes with the Accelerator as well.

    Returns:
        `place` where nothing is to go above the comment, or where there is none.
    """
    begin = place
    while begin and rows[begin - 1].is_comment and not _SECTION.match(_comment(rows[begin - 1])):
        begin -= 1
    moves = _MOVE_COMMENT.search(_comments(rows[begin:place])) and _MOVE_COMMENT.search(line)
    return place if moves or (top and not begin) else begin


def comment_above(rows: Sequence[Row], place: int) -> int:
    """How many rows a comment has that is only about the move below it: `# to the GPU`."""
    above = place
    while above and place - above < 2 and rows[above - 1].is_comment and _is_flush(rows[above - 1]):
        above -= 1
    text = _comments(rows[above:place])
    about = _MOVE_COMMENT.search(text) and not _STORED_COMMENT.search(text)
    return place - above if about and not (above and rows[above - 1].is_comment) else 0


def _comment(row: Row) -> str:
    return str(row.node.comment.value)


def _comments(rows: Sequence[Row]) -> str:
    return "\n".join(map(_comment, rows))


def _is_flush(row: Row) -> bool:
    return bool(row.node.indent) and not row.node.whitespace.value


@cache
def header_of(header: str, unit: str) -> Any:
    """The statement with some header, and nothing in it yet."""
    try:
        return cst.parse_statement(f"{header}\n{unit}pass\n")
    except cst.ParserSyntaxError as error:
        raise EditError(f"`{header}` heads no block") from error


def reindented(node: Any, indent: str, unit: str) -> Any:
    """A row that goes further in: its empty lines stay as they are.

    Args:
        node: the row.
        indent: the indentation that it has had.
        unit: one level of the file's indentation.
    """
    return node.visit(_Blank(indent, unit))


class _Blank(cst.CSTTransformer):
    def __init__(self, indent: str, unit: str) -> None:
        super().__init__()
        self.indents, self.unit = [indent], unit

    def visit_IndentedBlock(self, node: cst.IndentedBlock) -> None:
        self.indents.append(self.indents[-1] + (self.unit if node.indent is None else node.indent))

    def leave_IndentedBlock(self, original_node: cst.IndentedBlock, updated_node: cst.IndentedBlock) -> Any:
        self.indents.pop()
        return updated_node

    def leave_EmptyLine(self, original_node: cst.EmptyLine, updated_node: cst.EmptyLine) -> Any:
        if updated_node.comment is not None or not updated_node.indent:
            return updated_node
        blanks = self.indents[-1] + updated_node.whitespace.value
        return updated_node.with_changes(indent=False, whitespace=cst.SimpleWhitespace(blanks))
