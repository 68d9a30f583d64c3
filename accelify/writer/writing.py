"""A script with its edits made, as bytes."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

import libcst as cst

from accelify.analysis.syntax import Tree, children, walk
from accelify.obsolete_keywords import OBSOLETE, masked
from accelify.writer.application import Application, flat
from accelify.writer.edits import Delete, Edit, Replace, node_of
from accelify.writer.errors import EditError
from accelify.writer.rows import block_of_rows, rows_of
from accelify.writer.templates import expression

_PARTS = ("body", "handlers", "orelse", "finalbody")
_WITHOUT_BLOCKS = (cst.SimpleStatementLine, cst.SimpleStatementSuite, cst.Match)
_NAME = "_accelify_part_"
_AS_BLANK = " as _accelify_blank_"
_NAMES = re.compile(rf"(?:{_NAME}|{_AS_BLANK})(\d+)_")
# libcst 1.9 reads the blank of `except ValueError :` and does not return it , unless an `as` is there.
_BLANK = re.compile(rb"(?:[^:#]|#[^\r\n]*)*?([ \t]+):")
# Imports are not among them: those that are put in are joined with others.
_STATEMENTS = (ast.Expr, ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Return, ast.Raise, ast.Assert)
# What needs parentheses nowhere, as a name does not.
_EXPRESSIONS = (ast.Call, ast.Attribute, ast.Subscript)
# In these a name, or a place in the text, means something else.
_LEFT_OUT = (ast.JoinedStr, ast.pattern)


# Code that no edit touches, as one name for each part of it while libcst reads and writes what is around.
#
# It makes some thirty objects of a line, and takes longer for them than all else that is done with it.


class _Folded:
    """A part of a script with names in the place of some of its nodes, and of blanks that libcst would lose.

    Args:
        tree: the script.
        block: the statements of that part.
        nodes: statements and expressions on one line each, none inside another.
        start: where the part begins.
        stop: where it ends.
    """

    def __init__(
        self, tree: Tree, block: Iterable[ast.stmt], nodes: Iterable[ast.AST], start: int, stop: int
    ) -> None:
        self._texts: list[str] = []
        parts: list[str] = []
        places: list[tuple[int, int, str]] = []
        if not tree.mentions("_accelify_"):
            places = [(tree.start(node), tree.end(node), _NAME) for node in nodes]
            if re.search(rb"[ \t]:", tree.data[start:stop]):
                places += [(*place, _AS_BLANK) for place in _blanks(tree, block)]
        for begin, end, name in sorted(places):
            parts += [tree.data[start:begin].decode("utf-8"), f"{name}{len(self._texts)}_"]
            self._texts.append(tree.data[begin:end].decode("utf-8"))
            start = end
        self.text = "".join([*parts, tree.data[start:stop].decode("utf-8")])

    def unfolded(self, code: str) -> str:
        """Code with the texts in the places of their names."""
        return _NAMES.sub(lambda name: self._texts[int(name[1])], code) if self._texts else code


def _blanks(tree: Tree, block: Iterable[ast.stmt]) -> Iterator[tuple[int, int]]:
    for node in (node for stmt in block for node in walk(stmt)):
        if isinstance(node, ast.ExceptHandler) and node.type is not None and node.name is None:
            if found := _BLANK.match(tree.data, tree.end(node.type)):
                yield found.span(1)


def _untouched(
    nodes: Iterable[ast.AST], touched: Collection[ast.AST], read: Collection[ast.AST]
) -> Iterator[ast.AST]:
    """The outermost statements and expressions among some nodes and below them that stay as they are, on one line.

    Args:
        nodes: statements.
        touched: the nodes in or beside which something changes.
        read: nodes that are not among them, whatever is touched.
    """
    for node in nodes:
        below = children(node)
        if isinstance(node, _STATEMENTS):
            foldable = not any(child in touched for child in below)
        else:
            foldable = isinstance(node, _EXPRESSIONS) and node not in touched
        if foldable and node not in read and node.lineno == node.end_lineno:  # type: ignore[attr-defined]
            yield node
        elif not isinstance(node, _LEFT_OUT):
            yield from _untouched(below, touched, read)


def apply(tree: Tree, edits: Iterable[Edit]) -> bytes:
    """The script with all edits made, in UTF-8.

    Raises:
        EditError: when two edits want the same node, or one cannot be made at its place.
    """
    return Written(tree, edits, folds=True).data


def expression_with(tree: Tree, node: ast.expr, edits: Iterable[Edit]) -> str:
    """The source of an expression with some edits made.

    Raises:
        EditError: when they cannot be made.
    """
    work = Application(tree, edits)
    work.known[node] = expression((tree.segment(node),), work.original)
    return cst.Module([]).code_for_node(work.resolved(node))


class Written:
    """A script with its edits made: `data` is its new text.

    Args:
        tree: the script.
        edits: what is to be done.
        copied: nodes that are written again though nothing changes in them, to try the writer out.
        folds: whether libcst is spared the code that nothing changes: of it `regions` do not tell then.
    """

    def __init__(
        self, tree: Tree, edits: Iterable[Edit], copied: Iterable[ast.AST] = (), folds: bool = False
    ) -> None:
        self.tree = tree
        self.work = Application(tree, edits)
        self.work.touch(copied)
        # What libcst has to read by itself: what is put in the place of something, or joined with it.
        self._read: set[ast.AST] = {*self.work.rewrites, *self.work.joined}
        for edit in self.work.edits:
            for piece in edit.pieces if isinstance(edit, Replace) else ():
                if not isinstance(piece, str):
                    self._read |= {piece, *tree.ancestors(piece)}
        self._folds = folds
        parts: list[bytes] = []
        cursor = size = 0
        # What was read by libcst: the new tree, the statements, and where they begin and end, before and after.
        self.regions: list[tuple[cst.Module, list[ast.stmt], tuple[int, int], tuple[int, int]]] = []
        for module, begin, end in tree.parts():
            for first, last in _regions(tree, module.body, self.work.touched, self.work.emptied.gone):
                start = tree.line_end(tree.end(module.body[first - 1])) if first else begin
                block, ends = module.body[first : last + 1], last + 1 == len(module.body)
                stop = _last(tree, start, end) if ends else _after(tree, block[-1])
                new, data = self._region(module.body, block, start, stop)
                size += start - cursor
                self.regions.append((new, block, (start, stop), (size, size + len(data))))
                parts += [tree.data[cursor:start], data]
                size += len(data)
                cursor = stop
        parts.append(tree.data[cursor:])
        self.data = b"".join(parts)
        self._check()

    def _region(
        self, body: list[ast.stmt], block: list[ast.stmt], start: int, stop: int
    ) -> tuple[cst.Module, bytes]:
        """Some statements at the top of a file, with what is above them, as they become: a tree and its text."""
        # `async=` is recognised by the method that it is an argument of.
        folds = self._folds and not self.tree.mentions(OBSOLETE)
        nodes = _untouched(block, self.work.touched, self._read) if folds else ()
        folded = _Folded(self.tree, block, nodes, start, stop)
        text = folded.text
        carriage = "\r" in text.replace("\r\n", "") or ("\n" not in text and self.tree.newline == "\r")
        if carriage and "\n" in text:
            raise EditError("line ends of several kinds stand side by side")
        if carriage:
            text = text.replace("\r", "\n")
        hidden = masked(text) if OBSOLETE in text else None
        source = text if hidden is None else hidden[0]
        try:
            module = _with_footers_outside(cst.parse_module(source))
            # What these lines do not show is as in the rest of the file.
            if "\n" not in source and not carriage:
                module = module.with_changes(default_newline=self.tree.newline)
            if not any(map(self._is_indented, block)):
                module = module.with_changes(default_indent=self.work.unit)
            same = module.code == source
        except (cst.ParserSyntaxError, cst.CSTValidationError, RecursionError) as error:
            raise EditError("libcst does not read it") from error
        if not same:
            raise EditError("libcst does not give it back as it was")
        self.work.match(block, flat(module))
        new = block_of_rows(self.work.rows(body, rows_of(module, block)), module)
        if new.body and block[-1] in self.work.emptied.gone - self.work.emptied.passes:
            new = new.with_changes(has_trailing_newline=True)
        code: str = new.code if new.body or new.footer else ""
        if hidden is not None:
            code = code.replace(hidden[1], OBSOLETE)
        code = folded.unfolded(code)
        return new, (code.replace("\n", "\r") if carriage else code).encode("utf-8")

    def _is_indented(self, stmt: ast.stmt) -> bool:
        """Whether a statement has lines that show how far a block is indented."""
        body = getattr(stmt, "body", None)
        return isinstance(stmt, ast.Match) or (body is not None and self.tree.own_line(body[0]))

    def _check(self) -> None:
        """Report edits that could not be made together with the others."""
        work = self.work
        for edit in work.edits:
            # A statement that is taken out goes by itself or with one around it.
            if (
                id(edit) not in work.done
                and not isinstance(edit, Delete)
                and not getattr(edit, "yielding", False)
            ):
                node = node_of(edit)
                takes = (e for e in work.edits if e is not edit and isinstance(e, (Replace, Delete)))
                other = next((e for e in takes if self.tree.is_within(node, {node_of(e)})), edit)
                raise work.collision(node, other, edit)


def _last(tree: Tree, start: int, end: int) -> int:
    """Where the lines end that libcst is to read up to the end of a file.

    Of the empty lines there it loses some where one of them has blanks: then it reads none of them.
    """
    text = tree.data[start:end]
    rest = text[len(text.rstrip()) :]
    lines = rest.splitlines(keepends=True)
    return end if not any(line.strip(b"\r\n") for line in lines[1:]) else end - len(rest) + len(lines[0])


def _after(tree: Tree, stmt: ast.stmt) -> int:
    """Where the lines of a statement end, with comments after it that are further in."""
    end = line = tree.line_end(tree.end(stmt))
    while hasattr(stmt, "body") and line < tree.size:
        line, text = tree.line_end(line), tree.data[line : tree.line_end(line)]
        if text.strip() and (not text[:1].isspace() or not text.lstrip().startswith(b"#")):
            break
        end = line if text.strip() else end
    return end


def _regions(tree: Tree, body: list[ast.stmt], touched: set[ast.AST], gone: set[ast.stmt]) -> list[list[int]]:
    """Runs of statements at the top of a file in which something changes: the first and the last of each."""
    found: list[list[int]] = []
    for index, stmt in enumerate(body):
        if stmt not in touched:
            continue
        # A blank line that goes with a statement may be after it.
        start, stop = index, min(index + (stmt in gone), len(body) - 1)
        while start and not tree.own_line(body[start]):
            start -= 1
        while stop + 1 < len(body) and not tree.ends_line(body[stop]):
            stop += 1
        if found and start <= found[-1][1] + 1:
            found[-1][1] = max(found[-1][1], stop)
        else:
            found.append([start, stop])
    return found


# Empty lines and comments after a block, as lines of the block that they are in.
#
# libcst gives an inner block every line up to the last one that is indented as far as it is, though that has nothing
# but blanks in it. What is put in after the inner block, or stays when it goes, would then be on the wrong side of
# them.


def _with_footers_outside(module: cst.Module) -> cst.Module:
    """A module in which no block ends in lines that are further out, or in empty ones."""
    new, after = _trimmed(module, "", module.default_indent, True)
    found: cst.Module = new.with_changes(footer=[*after, *module.footer]) if after else new
    return found


def _trimmed(node: Any, indent: str, unit: str, ends: bool) -> tuple[Any, list[cst.EmptyLine]]:
    """A statement, a branch or a block, and the lines after it; none of these unless it `ends` its statement."""
    after: list[cst.EmptyLine] = []
    if isinstance(node, _WITHOUT_BLOCKS):
        return node, after
    block = isinstance(node, (cst.Module, cst.IndentedBlock))
    step = (unit if node.indent is None else node.indent) if isinstance(node, cst.IndentedBlock) else ""
    changes: dict[str, Any] = {}
    parts = [name for name in _PARTS if getattr(node, name, None)]
    for name in parts:
        old = getattr(node, name)
        nodes = old if isinstance(old, Sequence) else [old]
        made = []
        for one in nodes:
            above, last = after, block or (ends and name == parts[-1] and one is nodes[-1])
            new, after = _trimmed(one, indent + step, unit, last)
            made.append(new.with_changes(leading_lines=[*above, *new.leading_lines]) if above else new)
        if any(one is not other for one, other in zip(made, nodes, strict=True)):
            changes[name] = made if nodes is old else made[0]
    node = node.with_changes(**changes) if changes else node
    if not isinstance(node, cst.IndentedBlock):
        return node, after
    footer = [*after, *node.footer]
    stays = 0 if ends else len(footer)
    for place, line in enumerate(footer, 1):
        if line.comment is not None and (line.indent or len(line.whitespace.value) >= len(indent + step)):
            stays = max(stays, place)
    if after or stays < len(footer):
        node = node.with_changes(footer=footer[:stays])
    return node, [_further_out(line, step) for line in footer[stays:]]


def _further_out(line: cst.EmptyLine, step: str) -> cst.EmptyLine:
    return (
        line.with_changes(whitespace=cst.SimpleWhitespace(step + line.whitespace.value))
        if line.indent
        else line
    )
