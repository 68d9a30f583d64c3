"""Statements that share a line: `a; b`, `if x: a`."""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from functools import partial
from typing import Any

import libcst as cst

from accelify.analysis.syntax import Tree
from accelify.writer import templates
from accelify.writer.edits import Edit, InsertAfter, InsertBefore, PutUnder, Replace
from accelify.writer.emptied import Emptied
from accelify.writer.errors import EditError
from accelify.writer.rows import Row

_NEXT = cst.Semicolon(whitespace_after=cst.SimpleWhitespace(" "))


class SimpleStatements(ABC):
    """What becomes of simple statements."""

    tree: Tree
    edits: list[Edit]
    emptied: Emptied
    done: set[int]
    touched: set[ast.AST]
    before: Any
    after: Any
    joined: dict[ast.stmt, list[PutUnder]]
    rewrites: Any

    def line_of_statements(self, row: Row) -> list[Row]:
        """What becomes of a line of simple statements."""
        if len(row.statements) == 1 and (rewrites := self.rewrites.get(row.statements[0])):
            return self.rewritten(row, row.statements[0], rewrites[0])
        body = self._small(list(row.statements), list(row.node.body))
        return [row.with_node(row.node.with_changes(body=body))]

    def inline(self, block: list[ast.stmt], suite: cst.SimpleStatementSuite) -> cst.SimpleStatementSuite:
        """What becomes of a block on the line of its header."""
        body = self._small(block, list(suite.body))
        for edit in sorted(self.before.get(block[0], ()), key=lambda e: -e.order):
            self.done.add(id(edit))
            body = [self._one(edit).with_changes(semicolon=_NEXT), *body]
        for edit in sorted(self.after.get(block[-1], ()), key=lambda e: e.order):
            self.done.add(id(edit))
            new = self._one(edit).with_changes(semicolon=body[-1].semicolon)
            body = [*body[:-1], body[-1].with_changes(semicolon=_NEXT), new]
        return suite.with_changes(body=body)

    def _one(self, edit: InsertBefore | InsertAfter) -> Any:
        (line,) = templates.statements(edit.lines)
        if not isinstance(line, cst.SimpleStatementLine) or len(line.body) != 1:
            raise EditError(f"line {self.line(edit.statement)} holds more than one statement")
        return line.body[0]

    def _small(self, stmts: list[ast.stmt], body: list[Any]) -> list[Any]:
        found: list[Any] = []
        for index, (stmt, node) in enumerate(zip(stmts, body, strict=True)):
            if stmt in self.emptied.gone:
                self._mark_deleted(stmt)
                if stmt in self.emptied.passes or index == len(stmts) - 1:
                    found.append(cst.Pass(semicolon=node.semicolon))
                continue
            if stmt not in self.touched:
                found.append(node)
                continue
            if rewrites := self.rewrites.get(stmt):
                found.append(self._replaced(stmt, rewrites[0]).with_changes(semicolon=node.semicolon))
                continue
            new = self.changed_inside(stmt)
            for edit in self.joined.get(stmt, ()):
                self.done.add(id(edit))
                test = edit.header[3:-1] + " and "
                value = templates.expression((test, stmt), partial(_same, new.value))
                new = new.with_changes(value=value)
            found.append(new)
        return found

    def _replaced(self, stmt: ast.stmt, edit: Replace) -> Any:
        rows = self.statements_of(stmt, edit)
        if len(rows) != 1 or not isinstance(rows[0], cst.SimpleStatementLine) or len(rows[0].body) != 1:
            raise EditError(f"line {self.line(stmt)} holds more than one statement")
        return rows[0].body[0]

    def rewritten(self, row: Row, stmt: ast.stmt, edit: Replace) -> list[Row]:
        """The rows that some code makes in the place of a statement."""
        rows = self.statements_of(stmt, edit)
        if isinstance(row.node, cst.SimpleStatementLine) and isinstance(rows[-1], cst.SimpleStatementLine):
            rows[-1] = rows[-1].with_changes(trailing_whitespace=row.node.trailing_whitespace)
        return [Row(node, row.statements if node is rows[-1] else (), new=True) for node in rows]

    def statements_of(self, stmt: ast.stmt, edit: Replace) -> list[Any]:
        """The statements that the pieces of an edit make."""
        self.done.add(id(edit))
        if len(edit.pieces) == 1 and isinstance(edit.pieces[0], ast.stmt):
            piece = edit.pieces[0]
            node = self.changed_inside(piece) if piece in self.touched else self.original(piece)
            if isinstance(node, cst.BaseSmallStatement):
                node = cst.SimpleStatementLine([node.with_changes(semicolon=cst.MaybeSentinel.DEFAULT)])
            return [node.with_changes(leading_lines=())]
        holes: list[ast.AST] = [piece for piece in edit.pieces if not isinstance(piece, str)]
        names = iter(range(len(holes)))
        text = "".join(
            piece if isinstance(piece, str) else templates.hole(next(names)) for piece in edit.pieces
        )
        parts = [
            self.resolved(hole) if self.tree.is_within(hole, {stmt}) else self.original(hole)
            for hole in holes
        ]
        rows = templates.statements((text,), self.tree.indent(stmt))
        return [templates.fill(row, parts) for row in rows] if holes else rows

    @abstractmethod
    def line(self, node: Any) -> int:
        """The line of a node in its file."""

    @abstractmethod
    def original(self, node: ast.AST) -> Any:
        """What stands for a node before it is changed."""

    @abstractmethod
    def resolved(self, node: ast.AST) -> Any:
        """What stands for an expression once it is changed."""

    @abstractmethod
    def changed_inside(self, node: ast.AST, base: Any = None) -> Any:
        """What stands for a node with what changes below it."""

    @abstractmethod
    def _mark_deleted(self, stmt: ast.stmt) -> None: ...


def _same(value: Any, _: ast.AST) -> Any:
    return value
