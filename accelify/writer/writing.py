"""A script with its edits made, as bytes."""

from __future__ import annotations

import ast
from collections.abc import Iterable

import libcst as cst

from accelify.analysis.syntax import Tree
from accelify.obsolete_keywords import OBSOLETE, masked
from accelify.writer.application import Application, flat
from accelify.writer.edits import Delete, Edit, Replace, node_of
from accelify.writer.errors import EditError
from accelify.writer.folded import Folded, untouched
from accelify.writer.footers import with_footers_outside
from accelify.writer.rows import block_of_rows, rows_of
from accelify.writer.templates import expression


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
            for piece in getattr(edit, "pieces", getattr(edit, "taken", ())):
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
        nodes = untouched(block, self.work.touched, self._read) if folds else ()
        folded = Folded(self.tree, block, nodes, start, stop)
        text = folded.text
        carriage = "\r" in text.replace("\r\n", "") or ("\n" not in text and self.tree.newline == "\r")
        if carriage and "\n" in text:
            raise EditError("line ends of several kinds stand side by side")
        if carriage:
            text = text.replace("\r", "\n")
        hidden = masked(text) if OBSOLETE in text else None
        source = text if hidden is None else hidden[0]
        try:
            module = with_footers_outside(cst.parse_module(source))
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
