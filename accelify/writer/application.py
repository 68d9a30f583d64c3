"""Edits made: one copy of the paths from the nodes that they change up to the top of a file.

Here are blocks of statements: taken out, put in, put under a header.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import Any, TypeAlias

import libcst as cst

from accelify.analysis.statements.negation import negated
from accelify.analysis.syntax import Tree
from accelify.writer import templates
from accelify.writer.edits import Delete, Edit, InsertAfter, InsertBefore, PutUnder, Replace, Unwrap, node_of
from accelify.writer.emptied import emptied
from accelify.writer.errors import EditError
from accelify.writer.expressions import Expressions
from accelify.writer.imports import with_joined_imports
from accelify.writer.rows import Row, block_of_rows, comment_above, header_of, heading, reindented, rows_of

_FIELDS = ("body", "orelse", "finalbody")
_NEXT = cst.Semicolon(whitespace_after=cst.SimpleWhitespace(" "))
# Rows that go in beside one of a block, with their order among those of the same place.
_Inserted: TypeAlias = list[tuple[int, list[Row]]]


class Application(Expressions):
    """The edits of one tree being made."""

    def __init__(self, tree: Tree, edits: Iterable[Edit]) -> None:
        super().__init__(tree, _merged(tree, list(dict.fromkeys(edits))))
        self.unit = tree.indent_unit()
        self.emptied = emptied(tree, self.edits)
        self.touch(self.emptied.all)
        # Of these one block comes in the place of all.
        self.opened: dict[ast.stmt, str] = dict.fromkeys(self.emptied.opened, "orelse")
        self.before: defaultdict[ast.stmt, list[InsertBefore]] = defaultdict(list)
        self.after: defaultdict[ast.stmt, list[InsertAfter]] = defaultdict(list)
        self.under: defaultdict[int, list[PutUnder]] = defaultdict(list)
        self.joined: defaultdict[ast.stmt, list[PutUnder]] = defaultdict(list)
        self.widely = {edit.statement for edit in self.edits if isinstance(edit, Delete) and edit.blank_lines}
        for edit in self.edits:
            if isinstance(edit, InsertBefore):
                self.before[edit.statement].append(edit)
            elif isinstance(edit, InsertAfter):
                self.after[edit.statement].append(edit)
            elif isinstance(edit, Unwrap):
                self.opened[edit.statement] = "body"
            elif isinstance(edit, PutUnder):
                self._put_under(edit)

    def _put_under(self, edit: PutUnder) -> None:
        tree = self.tree
        block = tree.block_of(edit.first)[2]
        inside = block[block.index(edit.first) : block.index(edit.last) + 1]
        self.touch(inside)
        if tree.own_line(edit.first) and tree.ends_line(edit.last) and not tree.is_elif(edit.first):
            self.under[id(block)].append(edit)
        elif edit.header.startswith("if ") and all(isinstance(stmt, ast.Expr) for stmt in inside):
            for stmt in inside:
                self.joined[stmt].append(edit)
        else:
            raise self.several(edit.first)

    # -- where statements are

    def read_block(self, owner: ast.AST, stmt: ast.AST) -> None:
        around = self.original(owner)
        if isinstance(stmt, (ast.ExceptHandler, ast.match_case)):
            name = "handlers" if isinstance(stmt, ast.ExceptHandler) else "cases"
            self.match(getattr(owner, name), getattr(around, name))
            return
        _, name, block = self.tree.block_of(stmt)
        suite = _suite(around, name)
        self.match(block, [suite] if isinstance(suite, cst.If) else flat(suite))

    def match(self, nodes: Sequence[ast.AST], found: Sequence[Any]) -> None:
        """Note what represents some statements, handlers or cases.

        Raises:
            EditError: when there are not as many.
        """
        if len(nodes) != len(found):
            raise EditError("libcst reads these statements otherwise than Python does")
        self.known.update(zip(nodes, found, strict=True))

    # -- what becomes of them

    def with_blocks(self, node: ast.AST, base: Any) -> Any:
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
        if stmt in self.emptied.gone or stmt in self.before or stmt in self.after:
            raise self.several(stmt)
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
        for stmt, place in places.items():
            for above in self.before.get(stmt, ()):
                head, lines = place, above.lines
                if above.above_comment:
                    owner, line = self.tree.parent(stmt), self.tree.segment(stmt).partition("\n")[0]
                    is_first = isinstance(owner, ast.Module) and owner.body[0] is stmt
                    head = heading(rows, place, is_first, line)
                    # Of a module only the rows around what changes are here.
                    flush = rows[head - 1].is_statement if head else isinstance(owner, ast.Module)
                    apart = head < place and not flush
                    lines = (*lines, "") if apart and lines[-1] else lines
                before[head].append((above.order, self._lines(above, lines)))
            for below in self.after.get(stmt, ()):
                after[place].append((below.order, self._lines(below, below.lines)))
        removed = self._removed(block, rows)
        made = [[] if index in removed else self._row(row) for index, row in enumerate(rows)]
        # What goes before the first row under a header, or after the last one, is outside of it.
        for first, last, edit in reversed(self._nested(block, places)):
            inside = made[first]
            for index in range(first + 1, last + 1):
                inside = [*inside, *_in_order(after[index - 1]), *_in_order(before[index]), *made[index]]
                made[index], before[index], after[index - 1] = [], [], []
            made[first] = self._header(edit, inside)
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
            self.done.add(id(edit))
            while ends and ends[-1] < first:
                ends.pop()
            if ends and last > ends[-1]:
                raise EditError(f"two edits meet in line {self.line(edit.first)}", (edit,))
            ends.append(last)
        return headers

    def _lines(self, edit: InsertBefore | InsertAfter | PutUnder, lines: tuple[str, ...]) -> list[Row]:
        self.done.add(id(edit))
        taken = [self.changed_inside(node) for node in getattr(edit, "taken", ())]
        made = templates.statements(lines, self.tree.indent(node_of(edit)))
        return [Row(templates.fill(node, taken), new=True) for node in made]

    def _removed(self, block: list[ast.stmt], rows: list[Row]) -> set[int]:
        """The rows that go: statements with the comments that are only about them, and blank lines around them."""
        removed: set[int] = set()
        gone = self.emptied.gone
        goes = gone - self.emptied.passes
        for whole, places in groupby(range(len(rows)), lambda place: _is_in(goes, rows[place])):
            if not whole:
                continue
            first, *others = places
            last = others[-1] if others else first
            run = [stmt for row in rows[first : last + 1] for stmt in row.statements]
            above, below = first, last + 1
            beside = any(stmt in self.before or stmt in self.after for stmt in run)
            if not beside and (run[-1] is block[-1] or not rows[below].is_statement):
                above -= comment_above(rows, first)
            removed.update(range(above, below))
            leads = gone.issuperset(block[: block.index(run[0])]) and not (
                above and rows[above - 1].is_comment
            )
            blank_above = above > 0 and rows[above - 1].is_blank
            if run[-1] in self.widely:
                while below < len(rows) and rows[below].is_blank:
                    removed.add(below)
                    below += 1
            # Between two blank lines one of them goes too, so that no hole shows where the statements were.
            elif (leads or blank_above) and run[-1] not in self.after and self.tree.blank_after(run[-1]):
                if below < len(rows) and rows[below].is_blank:
                    removed.add(below)
                elif blank_above:
                    removed.add(above - 1)
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
            rest = block_of_rows(self._lines(edit, edit.otherwise), cst.IndentedBlock(body=[]))
            header = header.with_changes(orelse=cst.Else(body=rest))
        return [Row(header, new=True)]

    def _row(self, row: Row) -> list[Row]:
        """What becomes of one statement, or of those that share a line."""
        if self.touched.isdisjoint(row.statements):
            return [row]
        stmt = row.statements[0]
        if isinstance(row.node, cst.SimpleStatementLine):
            if len(row.statements) == 1 and (rewrites := self.rewrites.get(stmt)):
                return self.rewritten(row, stmt, rewrites[0])
            body = self._small(list(row.statements), list(row.node.body))
            return [row.with_node(row.node.with_changes(body=body))]
        if stmt in self.emptied.gone:
            return [row.with_node(cst.SimpleStatementLine([cst.Pass()]))]
        if name := self.opened.get(stmt):
            self.done.update(id(e) for e in self.edits if isinstance(e, Unwrap) and e.statement is stmt)
            suite, block = _suite(self.original(stmt), name), getattr(stmt, name)
            if isinstance(suite, cst.SimpleStatementSuite):
                return [Row(cst.SimpleStatementLine(self.inline(block, suite).body), tuple(block))]
            return self.rows(block, rows_of(suite, block))
        if rewrites := self.rewrites.get(stmt):
            return self.rewritten(row, stmt, rewrites[0])
        return [row.with_node(self.changed_inside(stmt).with_changes(leading_lines=()))]

    # -- statements that share a line: `a; b`, `if x: a`

    def inline(self, block: list[ast.stmt], suite: cst.SimpleStatementSuite) -> cst.SimpleStatementSuite:
        """What becomes of a block on the line of its header."""
        body = self._small(block, list(suite.body))
        inserts = [[e for stmt in block for e in known.get(stmt, ())] for known in (self.before, self.after)]
        for before in sorted(inserts[0], key=lambda e: -e.order):
            body = [self._one(before).with_changes(semicolon=_NEXT), *body]
        for after in sorted(inserts[1], key=lambda e: e.order):
            new = self._one(after).with_changes(semicolon=body[-1].semicolon)
            body = [*body[:-1], body[-1].with_changes(semicolon=_NEXT), new]
        return suite.with_changes(body=body)

    def _one(self, edit: InsertBefore | InsertAfter) -> Any:
        rows = [row.node for row in self._lines(edit, edit.lines)]
        return self._alone(edit.statement, rows if len(edit.lines) == 1 else [])

    def _alone(self, stmt: ast.stmt, rows: list[Any]) -> Any:
        """The one simple statement of some rows."""
        if len(rows) != 1 or not isinstance(rows[0], cst.SimpleStatementLine) or len(rows[0].body) != 1:
            raise self.several(stmt)
        return rows[0].body[0]

    def _small(self, stmts: list[ast.stmt], body: list[Any]) -> list[Any]:
        found: list[Any] = []
        for index, (stmt, node) in enumerate(zip(stmts, body, strict=True)):
            if stmt in self.emptied.gone:
                if stmt in self.emptied.passes or index == len(stmts) - 1:
                    found.append(cst.Pass(semicolon=node.semicolon))
                continue
            if rewrites := self.rewrites.get(stmt):
                new = self._alone(stmt, self.statements_of(stmt, rewrites[0]))
                found.append(new.with_changes(semicolon=node.semicolon))
                continue
            new = self.changed_inside(stmt) if stmt in self.touched else node
            for edit in self.joined.get(stmt, ()):
                self.done.add(id(edit))
                test = edit.header[3:-1] + " and "
                value = templates.expression((test, stmt), lambda _, value=new.value: value)  # type: ignore[misc]
                new = new.with_changes(value=value)
            found.append(new)
        return found

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
        return templates.statements_of(edit.pieces, self.tree.indent(stmt), partial(self.part, stmt, None))

    # -- helpers

    def several(self, stmt: ast.stmt) -> EditError:
        """The complaint that a statement has no line for itself."""
        return EditError(f"line {self.line(stmt)} holds more than one statement")


def _merged(tree: Tree, edits: list[Edit]) -> list[Edit]:
    """The edits, with neighbouring statements that get the same header under one of them."""
    beside = {edit.statement for edit in edits if isinstance(edit, (InsertBefore, InsertAfter))}
    headers = [edit for edit in edits if isinstance(edit, PutUnder) and not edit.otherwise]
    starting = {edit.first: edit for edit in headers}
    wider: dict[PutUnder, PutUnder] = {}
    gone: set[PutUnder] = set()
    for edit in sorted(headers, key=lambda edit: tree.start(edit.first), reverse=True):
        block = tree.block_of(edit.last)[2]
        other = next((starting.get(stmt) for stmt in block[block.index(edit.last) + 1 :]), None)
        if other is not None and other.header == edit.header and beside.isdisjoint((edit.last, other.first)):
            if not tree.parted(edit.last, other.first):
                gone.add(other)
                wider[edit] = replace(edit, last=wider.pop(other, other).last)
    return [
        wider.get(edit, edit) if isinstance(edit, PutUnder) else edit for edit in edits if edit not in gone
    ]


def _is_in(goes: set[ast.stmt], row: Row) -> bool:
    return bool(row.statements) and goes.issuperset(row.statements)


def _in_order(inserted: _Inserted) -> list[Row]:
    return [row for _, rows in sorted(inserted, key=lambda one: one[0]) for row in rows]


def _suite(around: Any, name: str) -> Any:
    if name == "body":
        return around if isinstance(around, cst.Module) else around.body
    part = getattr(around, name)
    return part if isinstance(part, cst.If) else part.body


def flat(suite: Any) -> list[Any]:
    """The statements of a block of libcst's, also those that share a line."""
    if isinstance(suite, cst.SimpleStatementSuite):
        return [*suite.body]
    return [
        one
        for stmt in suite.body
        for one in (stmt.body if isinstance(stmt, cst.SimpleStatementLine) else [stmt])
    ]
