"""Blocks of statements: taken out, put in, put under a header."""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, TypeAlias

import libcst as cst

from accelify.analysis.statements.negation import negated
from accelify.analysis.syntax import Tree
from accelify.writer import templates
from accelify.writer.edits import Delete, Edit, InsertAfter, InsertBefore, PutUnder, Replace, Unwrap, node_of
from accelify.writer.emptied import emptied
from accelify.writer.errors import EditError
from accelify.writer.imports import with_joined_imports
from accelify.writer.lines import first_on_line, heading, last_on_line
from accelify.writer.recorded import merged
from accelify.writer.rows import Row, block_of_rows, header_of, reindented, rows_of

_FIELDS = ("body", "orelse", "finalbody")
_MORE = "more than one statement"
_NEXT = cst.Semicolon(whitespace_after=cst.SimpleWhitespace(" "))
# Rows that go in beside one of a block, with their order among those of the same place.
_Inserted: TypeAlias = list[tuple[int, list[Row]]]


class Blocks(ABC):
    """The statements of one tree being changed."""

    rewrites: defaultdict[ast.AST, list[Replace]]

    @abstractmethod
    def original(self, node: ast.AST) -> Any:
        """What represents a node before it is changed."""

    @abstractmethod
    def resolved(self, node: ast.AST) -> Any:
        """What represents an expression once it is changed."""

    @abstractmethod
    def changed_inside(self, node: ast.AST, base: Any = None) -> Any:
        """What represents a node with what changes below it."""

    def __init__(self, tree: Tree, edits: list[Edit]) -> None:
        self.tree = tree
        self.edits = merged(tree, edits)
        self.unit = tree.indent_unit()
        self.known: dict[ast.AST, Any] = {}
        self.done: set[int] = set()
        self.emptied = emptied(tree, self.edits)
        self.before: defaultdict[ast.stmt, list[InsertBefore]] = defaultdict(list)
        self.after: defaultdict[ast.stmt, list[InsertAfter]] = defaultdict(list)
        self.under: defaultdict[int, list[PutUnder]] = defaultdict(list)
        self.joined: dict[ast.stmt, list[PutUnder]] = {}
        self.touched: set[ast.AST] = set()
        for edit in self.edits:
            self._record(edit)
        self.touch(self.emptied.gone)
        self.touch(self.emptied.without_else | self.emptied.negated | self.emptied.opened)

    def _record(self, edit: Edit) -> None:
        tree = self.tree
        self.touch([node_of(edit)])
        if isinstance(edit, InsertBefore):
            stmt = first_on_line(tree, edit.statement)
            if not tree.own_line(stmt) or tree.is_elif(stmt):
                self._check_inline(stmt, edit.lines)
            self.touch([stmt])
            self.before[stmt].append(edit)
        elif isinstance(edit, InsertAfter):
            stmt = last_on_line(tree, edit.statement)
            if not tree.own_line(first_on_line(tree, stmt)) and not tree.is_elif(stmt):
                self._check_inline(first_on_line(tree, stmt), edit.lines)
            if not tree.ends_line(stmt):
                raise EditError(f"line {self.line(stmt)} holds {_MORE}")
            self.touch([stmt])
            self.after[stmt].append(edit)
        elif isinstance(edit, PutUnder):
            block = tree.block_of(edit.first)[2]
            inside = block[block.index(edit.first) : block.index(edit.last) + 1]
            self.touch(inside)
            if not tree.own_line(edit.first) or not tree.ends_line(edit.last) or tree.is_elif(edit.first):
                if not edit.header.startswith("if ") or not all(isinstance(s, ast.Expr) for s in inside):
                    raise EditError(f"line {self.line(edit.first)} holds {_MORE}")
                for stmt in inside:
                    self.joined.setdefault(stmt, []).append(edit)
            else:
                self.under[id(block)].append(edit)

    def _check_inline(self, stmt: ast.stmt, lines: tuple[str, ...]) -> None:
        inline = not self.tree.is_elif(stmt) and isinstance(self.tree.parent(stmt), ast.stmt)
        if not inline or len(lines) != 1 or lines[0].startswith("#"):
            raise EditError(f"line {self.line(stmt)} holds {_MORE}")

    def touch(self, nodes: Iterable[ast.AST]) -> None:
        """Have nodes written again, with those around them."""
        for node in nodes:
            current: ast.AST | None = node
            while current is not None and current not in self.touched:
                self.touched.add(current)
                current = self.tree.parent(current)

    # -- where statements are

    def read_block(self, owner: ast.AST, stmt: ast.AST) -> None:
        """Find what represents the statements (or handlers, or cases) that an owner has in the list of one of them."""
        around = self.original(owner)
        if isinstance(stmt, (ast.ExceptHandler, ast.match_case)):
            nodes = owner.handlers if isinstance(stmt, ast.ExceptHandler) else owner.cases  # type: ignore[attr-defined]
            found = around.handlers if isinstance(stmt, ast.ExceptHandler) else around.cases
            self._match(nodes, found)
            return
        _, name, block = self.tree.block_of(stmt)
        suite = _suite(around, name)
        if isinstance(suite, cst.If):
            self._match(block, [suite])
        else:
            self._match(block, _flat(suite))

    def _match(self, nodes: Sequence[ast.AST], found: Sequence[Any]) -> None:
        if len(nodes) != len(found):
            raise EditError("libcst reads these statements otherwise than Python does")
        self.known.update(zip(nodes, found, strict=True))

    # -- what becomes of them

    def with_blocks(self, node: ast.AST, base: Any) -> Any:
        """A statement, a handler or a case with its blocks as they become."""
        for name in ("handlers", "cases"):
            parts = getattr(node, name, None)
            if parts and any(part in self.touched for part in parts):
                new = [self.changed_inside(p) if p in self.touched else self.original(p) for p in parts]
                base = base.with_changes(**{name: new})
        for name in _FIELDS:
            block = getattr(node, name, None)
            if not isinstance(block, list) or not any(stmt in self.touched for stmt in block):
                continue
            suite = _suite(self.original(node), name)
            if name == "body":
                base = base.with_changes(body=self.block(block, suite))
            elif node in self.emptied.without_else:
                base = base.with_changes(orelse=None)
            elif isinstance(suite, cst.If):
                base = base.with_changes(orelse=self._elif(block[0]))
            else:
                inner = getattr(base, name)
                base = base.with_changes(**{name: inner.with_changes(body=self.block(block, suite))})
        if node in self.emptied.negated:
            test = templates.expression((negated(self.tree.segment(node.test)),), self.original)
            header = self.original(node).body.header
            body = base.orelse.body if base.orelse is not None else None
            assert isinstance(body, cst.IndentedBlock)
            base = base.with_changes(test=test, body=body.with_changes(header=header), orelse=None)
        return base

    def _elif(self, stmt: ast.stmt) -> Any:
        if stmt in self.emptied.gone or any(
            isinstance(e, Delete) and e.statement is stmt for e in self.edits
        ):
            raise EditError(f"line {self.line(stmt)} is a branch of another statement")
        if rewrites := self.rewrites.get(stmt):
            rows = self.rewritten(Row(self.original(stmt), (stmt,)), stmt, rewrites[0])
            return cst.Else(block_of_rows(rows, cst.IndentedBlock(())), self.original(stmt).leading_lines)
        return self.changed_inside(stmt)

    def block(self, block: list[ast.stmt], suite: Any) -> Any:
        """A block with everything that happens in it."""
        if isinstance(suite, cst.SimpleStatementSuite):
            return self.inline(block, suite)
        return block_of_rows(self.rows(block, rows_of(suite, block)), suite)

    def rows(self, block: list[ast.stmt], rows: list[Row]) -> list[Row]:
        """The rows of a block, or of a part of it, with everything that happens in them."""
        places = {stmt: index for index, row in enumerate(rows) for stmt in row.statements}
        before: list[_Inserted] = [[] for _ in rows]
        after: list[_Inserted] = [[] for _ in rows]
        for stmt in places:
            self._insert(stmt, places, rows, before, after)
        removed = self._removed(block, places, rows)
        made = [
            [] if index in removed else self._row(row) if row.statements else [row]
            for index, row in enumerate(rows)
        ]
        # What goes before the first row under a header, or after the last one, is outside of it.
        for first, last, edit in reversed(self._nested(block, places)):
            inside = made[first]
            for index in range(first + 1, last + 1):
                inside = [*inside, *_in_order(after[index - 1]), *_in_order(before[index]), *made[index]]
                made[index], before[index], after[index - 1] = [], [], []
            made[first] = self._header(edit, inside)
            self.done.add(id(edit))
        parts = zip(map(_in_order, before), made, map(_in_order, after), strict=True)
        return with_joined_imports([row for three in parts for part in three for row in part])

    def _nested(self, block: list[ast.stmt], places: dict[ast.stmt, int]) -> list[tuple[int, int, PutUnder]]:
        """The headers of a block with their first and last rows, outer ones before those inside.

        Raises:
            EditError: when one begins inside another and ends after it.
        """
        headers = [(places[e.first], places[e.last], e) for e in self.under[id(block)] if e.first in places]
        headers.sort(key=lambda one: (one[0], -one[1]))
        ends: list[int] = []
        for first, last, edit in headers:
            while ends and ends[-1] < first:
                ends.pop()
            if ends and last > ends[-1]:
                raise EditError(f"two edits meet in line {self.line(edit.first)}", (edit,))
            ends.append(last)
        return headers

    def _insert(
        self,
        stmt: ast.stmt,
        places: dict[ast.stmt, int],
        rows: list[Row],
        above: list[_Inserted],
        below: list[_Inserted],
    ) -> None:
        for before in self.before.get(stmt, ()):
            place, lines = places[stmt], before.lines
            if before.above_comment:
                start = self.tree.line_start(self.tree.start(stmt))
                head = heading(self.tree, start)
                count = sum(head <= line < start for line in self.tree.line_starts)
                while count and place and not rows[place - 1].statements:
                    place, count = place - 1, count - 1
                if head < start and lines[-1]:
                    lines = (*lines, "")
            above[place].append((before.order, self._lines(stmt, lines)))
            self.done.add(id(before))
        for after in self.after.get(stmt, ()):
            below[places[stmt]].append((after.order, self._lines(stmt, after.lines)))
            self.done.add(id(after))

    def _lines(self, stmt: ast.stmt, lines: tuple[str, ...]) -> list[Row]:
        rows = templates.statements(lines, self.tree.indent(stmt))
        return [Row(node, new=True) for node in rows]

    def _removed(self, block: list[ast.stmt], places: dict[ast.stmt, int], rows: list[Row]) -> set[int]:
        """The rows that go: statements with the comments that are only about them, and blank lines around them."""
        removed: set[int] = set()
        for run in self.emptied.runs.get(id(block), ()):
            here = [places[stmt] for stmt in run.statements if stmt in places]
            if not here:
                continue  # in another part of a file
            removed.update(here)
            above, count = here[0] - 1, run.comments
            while count and above >= 0 and rows[above].is_comment:
                removed.add(above)
                above, count = above - 1, count - 1
            if run.closes == "all":
                after = here[-1] + 1
                while after < len(rows) and rows[after].is_blank:
                    removed.add(after)
                    after += 1
            elif run.closes:
                blank = [i for i in (here[-1] + 1, above) if 0 <= i < len(rows) and rows[i].is_blank]
                removed.update(blank[:1])
            for stmt in run.statements:
                self._mark_deleted(stmt)
        return removed

    def _header(self, edit: PutUnder, rows: list[Row]) -> list[Row]:
        if not any(row.is_statement for row in rows):
            return rows
        header = header_of(edit.header, self.unit)
        indent = self.tree.indent(edit.first)
        inside = [row.with_node(reindented(row.node, indent, self.unit)) for row in rows]
        block = block_of_rows(inside, cst.IndentedBlock(body=[]))
        header = header.with_changes(body=block)
        if edit.otherwise:
            rest = block_of_rows(self._lines(edit.first, edit.otherwise), cst.IndentedBlock(body=[]))
            header = header.with_changes(orelse=cst.Else(body=rest))
        return [Row(header, new=True)]

    def _row(self, row: Row) -> list[Row]:
        """What becomes of one statement, or of those that share a line."""
        if not any(stmt in self.touched for stmt in row.statements):
            return [row]
        if isinstance(row.node, cst.SimpleStatementLine):
            return self.line_of_statements(row)
        (stmt,) = row.statements
        if stmt in self.emptied.passes or stmt in self.emptied.gone:
            self._mark_deleted(stmt)
            return [row.with_node(cst.SimpleStatementLine([cst.Pass()]))]
        if any(isinstance(e, Unwrap) and e.statement is stmt for e in self.edits):
            return self._unwrapped(stmt)
        if stmt in self.emptied.opened:
            assert isinstance(stmt, ast.If)
            suite = _suite(self.original(stmt), "orelse")
            return self.rows(stmt.orelse, rows_of(suite, stmt.orelse))
        if rewrites := self.rewrites.get(stmt):
            return self.rewritten(row, stmt, rewrites[0])
        node = self.changed_inside(stmt)
        return [row.with_node(node.with_changes(leading_lines=()))]

    def _unwrapped(self, stmt: Any) -> list[Row]:
        """The rows of what was under a header that goes."""
        self.done.update(id(e) for e in self.edits if isinstance(e, Unwrap) and e.statement is stmt)
        suite = _suite(self.original(stmt), "body")
        if isinstance(suite, cst.SimpleStatementSuite):
            return [Row(cst.SimpleStatementLine(self.inline(stmt.body, suite).body), tuple(stmt.body))]
        return self.rows(stmt.body, rows_of(suite, stmt.body))

    # -- statements that share a line: `a; b`, `if x: a`

    def line_of_statements(self, row: Row) -> list[Row]:
        """What becomes of a line of simple statements."""
        if len(row.statements) == 1 and (rewrites := self.rewrites.get(row.statements[0])):
            return self.rewritten(row, row.statements[0], rewrites[0])
        body = self._small(list(row.statements), list(row.node.body))
        return [row.with_node(row.node.with_changes(body=body))]

    def inline(self, block: list[ast.stmt], suite: cst.SimpleStatementSuite) -> cst.SimpleStatementSuite:
        """What becomes of a block on the line of its header."""
        body = self._small(block, list(suite.body))
        for before in sorted(self.before.get(block[0], ()), key=lambda e: -e.order):
            body = [self._one(before).with_changes(semicolon=_NEXT), *body]
        for after in sorted(self.after.get(block[-1], ()), key=lambda e: e.order):
            new = self._one(after).with_changes(semicolon=body[-1].semicolon)
            body = [*body[:-1], body[-1].with_changes(semicolon=_NEXT), new]
        return suite.with_changes(body=body)

    def _one(self, edit: InsertBefore | InsertAfter) -> Any:
        self.done.add(id(edit))
        (line,) = templates.statements(edit.lines)
        if not isinstance(line, cst.SimpleStatementLine) or len(line.body) != 1:
            raise EditError(f"line {self.line(edit.statement)} holds {_MORE}")
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
                new = new.with_changes(value=templates.expression((test, stmt), partial(_same, new.value)))
            found.append(new)
        return found

    def _replaced(self, stmt: ast.stmt, edit: Replace) -> Any:
        rows = self.statements_of(stmt, edit)
        if len(rows) != 1 or not isinstance(rows[0], cst.SimpleStatementLine) or len(rows[0].body) != 1:
            raise EditError(f"line {self.line(stmt)} holds {_MORE}")
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

    # -- helpers

    def _mark_deleted(self, stmt: ast.stmt) -> None:
        self.done.update(id(e) for e in self.edits if isinstance(e, Delete) and e.statement is stmt)

    def line(self, node: Any) -> int:
        """The line of a node in its file, of several that are converted together."""
        return self.tree.locate(self.tree.start(node))[1]

    def collision(self, node: Any, one: Edit, other: Edit) -> EditError:
        """The complaint of two edits of which only one can be made."""
        return EditError(f"two edits meet in line {self.line(node)}", (one, other))

    def quotes_around(self, node: ast.AST) -> frozenset[str]:
        """The quotes of the f-strings around a node."""
        found: set[str] = set()
        for around in self.tree.ancestors(node):
            if isinstance(around, ast.JoinedStr):
                known = self.original(around)
                parts = [known] if isinstance(known, cst.FormattedString) else _strings(known)
                found |= {part.start[-1] for part in parts}
        return frozenset(found)


def _in_order(inserted: _Inserted) -> list[Row]:
    return [row for _, rows in sorted(inserted, key=lambda one: one[0]) for row in rows]


def _suite(around: Any, name: str) -> Any:
    if name == "body":
        return around if isinstance(around, cst.Module) else around.body
    part = getattr(around, name)
    return part if isinstance(part, cst.If) else part.body


def _flat(suite: Any) -> list[Any]:
    if isinstance(suite, cst.SimpleStatementSuite):
        return [*suite.body]
    return [
        one
        for stmt in suite.body
        for one in (stmt.body if isinstance(stmt, cst.SimpleStatementLine) else [stmt])
    ]


def _strings(node: Any) -> list[Any]:
    if isinstance(node, cst.ConcatenatedString):
        return [*_strings(node.left), *_strings(node.right)]
    return [node] if isinstance(node, cst.FormattedString) else []


def _same(value: Any, _: ast.AST) -> Any:
    return value
