"""Converted scripts as mutators see them: where nodes stand, and how a text with changes comes about."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeVar

GATHERS = ("gather", "gather_for_metrics", "gather_object")
MEETINGS = (
    *GATHERS,
    "reduce",
    "backward",
    "wait_for_everyone",
    "clip_grad_norm_",
    "clip_grad_value_",
    "shard_batch",
)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
Node = TypeVar("Node", bound=ast.AST)


@dataclass(frozen=True)
class Edit:
    """Bytes from `start` to `end` become `text`."""

    start: int
    end: int
    text: str


@dataclass(frozen=True)
class Mutant:
    """A converted script with one fault in it.

    Args:
        kind: the mutator's name.
        file: the file of the golden that was changed.
        text: its new text.
        line: the fault's line in the new text.
        edits: what was changed.
        original: the text before.
        names: names whose values are wrong then; an obligation is in the right place where it is in the fault's line,
            or follows from it or from a line with one of them.
        reach: further lines of the new text that it may be in.
        equivalent: why this is no fault, empty where it is one.
    """

    kind: str
    file: Path
    text: str
    line: int
    edits: tuple[Edit, ...]
    original: bytes
    names: frozenset[str] = frozenset()
    reach: frozenset[int] = frozenset()
    equivalent: str = ""

    def golden_line(self, line: int) -> int:
        """The line before the change that a line of the new text was."""
        offset = sum(len(text) for text in self.text.encode().splitlines(keepends=True)[: line - 1])
        shift = 0
        for edit in self.edits:
            if offset < edit.start + shift:
                break
            size = len(edit.text.encode())
            if offset < edit.start + shift + size:
                return self.original.count(b"\n", 0, edit.start) + 1
            shift += size - (edit.end - edit.start)
        return self.original.count(b"\n", 0, offset - shift) + 1

    @cached_property
    def changed(self) -> frozenset[int]:
        """The fault's line, and all lines of the new text that were written anew."""
        found, shift = {self.line, *self.reach}, 0
        text = self.text.encode()
        for edit in self.edits:
            size = len(edit.text.encode())
            if size:
                first = text.count(b"\n", 0, edit.start + shift) + 1
                found |= set(range(first, first + edit.text.rstrip("\n").count("\n") + 1))
            shift += size - (edit.end - edit.start)
        return frozenset(found)


@dataclass(frozen=True, eq=False)
class Golden:
    """A converted script without faults.

    Args:
        name: its fixture, and how it was converted.
        script: where its original lies, so that the modules of its project are found.
        files: the converted text of each of its files.
        total: whether all processes share a batch.
        accelerate: whether it is written for Hugging Face Accelerate.
        distributed: whether the original distributes itself.
    """

    name: str
    script: Path
    files: dict[Path, str]
    total: bool = False
    accelerate: bool = False
    distributed: bool = False

    def read(self, path: Path) -> str | None:
        """The converted text of a file, the disk's for one that was not converted."""
        for known, text in self.files.items():
            if known.resolve() == path.resolve():
                return text
        return path.read_text() if path.is_file() else None

    @cached_property
    def prepared(self) -> frozenset[tuple[str, str]]:
        """Names of prepared objects, each with the function that knows it by that name, empty for a module."""
        places = [(function, call) for tree in self._trees for function, call in _calls_of(tree, "")]
        found = {
            (function, word(arg))
            for function, call in places
            if word(call.func) == "prepare"
            for arg in call.args
        }
        for _ in range(3):
            for function, call in places:
                for arg, parameter in zip(call.args, self._functions.get(word(call.func), []), strict=False):
                    if {(function, word(arg)), ("", word(arg))} & found and word(arg):
                        found.add((word(call.func), parameter.arg))
        return frozenset(found)

    @cached_property
    def _functions(self) -> dict[str, list[ast.arg]]:
        return {
            node.name: node.args.args
            for tree in self._trees
            for node in ast.walk(tree)
            if isinstance(node, FUNCTIONS)
        }

    @cached_property
    def _trees(self) -> list[ast.Module]:
        return [ast.parse(text) for text in self.files.values()]

    @cached_property
    def _calls(self) -> list[ast.Call]:
        return [node for tree in self._trees for node in ast.walk(tree) if isinstance(node, ast.Call)]

    def called(self, names: Iterable[str]) -> frozenset[str]:
        """Some names, and those of the parameters that functions of any file get them as."""
        found = set(names) - {""}
        for _ in range(3):
            for call in self._calls:
                parameters = self._functions.get(word(call.func), [])
                found |= {p.arg for arg, p in zip(call.args, parameters, strict=False) if word(arg) in found}
        return frozenset(found)

    def lines_with(self, names: Iterable[str]) -> dict[str, frozenset[int]]:
        """For each file's name: the lines in which one of some names stands, whatever functions call it."""
        wanted = self.called(names)
        return {
            path.name: frozenset(
                node.lineno
                for node in ast.walk(ast.parse(text))
                if isinstance(node, ast.Name | ast.Attribute | ast.arg)
                and (word(node) or getattr(node, "arg", "")) in wanted
            )
            for path, text in self.files.items()
        }


def _calls_of(node: ast.AST, function: str) -> Iterator[tuple[str, ast.Call]]:
    """All calls below a node, each with the name of the function that it stands in."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Call):
            yield function, child
        yield from _calls_of(child, child.name if isinstance(child, FUNCTIONS) else function)


class Script:
    """One file of a golden."""

    def __init__(self, golden: Golden, file: Path) -> None:
        self.golden = golden
        self.file = file
        self.bytes = golden.files[file].encode()
        self.tree = ast.parse(self.bytes)
        self.nodes = list(ast.walk(self.tree))
        self.parents = {child: node for node in self.nodes for child in ast.iter_child_nodes(node)}
        lines = self.bytes.splitlines(keepends=True)
        self._starts = [sum(map(len, lines[:number])) for number in range(len(lines) + 1)]

    # Finding

    def calls(self, *methods: str) -> Iterator[ast.Call]:
        """Calls of the Accelerator's methods, or of Accelerate's functions, in the order of the text."""
        for node in sorted(self.of(ast.Call), key=lambda node: (node.lineno, node.col_offset)):
            func = node.func
            method = isinstance(func, ast.Attribute) and word(func.value) == "accelerator"
            if word(func) in methods and (method or (isinstance(func, ast.Name) and func.id in GATHERS)):
                yield node

    def of(self, cls: type[Node]) -> list[Node]:
        """All nodes of a class."""
        return [node for node in self.nodes if isinstance(node, cls)]

    def around(self, node: ast.AST, *classes: type[Node]) -> Node | None:
        """The nearest node of some classes that a node stands in."""
        place = self.parents.get(node)
        while place is not None and not isinstance(place, classes):
            place = self.parents.get(place)
        return place

    def is_prepared(self, node: ast.AST) -> bool:
        """Whether a name is that of a prepared object where it stands."""
        function = self.around(node, *FUNCTIONS)
        return bool(
            {("", word(node)), (function.name if function else "", word(node))} & self.golden.prepared
        )

    def statement(self, node: ast.AST) -> ast.stmt:
        """The statement that a node stands in."""
        found = node if isinstance(node, ast.stmt) else self.around(node, ast.stmt)
        assert found is not None
        return found

    def block(self, stmt: ast.stmt) -> list[ast.stmt]:
        """The statements beside a statement, and itself."""
        parent = self.parents[stmt]
        bodies = [getattr(parent, name, []) for name in ("body", "orelse", "finalbody")]
        return next(body for body in bodies if isinstance(body, list) and stmt in body)

    def segment(self, node: ast.AST) -> str:
        """The text of a node."""
        start, end = self.span(node)
        return self.bytes[start:end].decode()

    def span(self, node: ast.AST) -> tuple[int, int]:
        """Where a node starts and ends, in bytes."""
        return (
            self._starts[node.lineno - 1] + node.col_offset,  # type: ignore[attr-defined]
            self._starts[node.end_lineno - 1] + node.end_col_offset,  # type: ignore[attr-defined]
        )

    # Changing

    def replace(self, node: ast.AST, text: str) -> Edit:
        """Another text in place of a node."""
        return Edit(*self.span(node), text)

    def delete(self, stmt: ast.stmt) -> Edit:
        """Leave a statement out."""
        if len(self.block(stmt)) == 1:
            return self.replace(stmt, "pass")
        return Edit(self._starts[stmt.lineno - 1], self._starts[stmt.end_lineno or stmt.lineno], "")

    def before(self, stmt: ast.stmt, *lines: str) -> Edit:
        """Lines before a statement."""
        start = self._starts[stmt.lineno - 1]
        return Edit(start, start, "".join(f"{' ' * stmt.col_offset}{line}\n" for line in lines))

    def after(self, stmt: ast.stmt, *lines: str) -> Edit:
        """Lines after a statement."""
        start = self._starts[stmt.end_lineno or stmt.lineno]
        return Edit(start, start, "".join(f"{' ' * stmt.col_offset}{line}\n" for line in lines))

    def wrapped(self, stmt: ast.stmt, header: str, *footer: str) -> list[Edit]:
        """A statement in a block."""
        numbers = range(stmt.lineno, (stmt.end_lineno or stmt.lineno) + 1)
        indents = [Edit(self._starts[number - 1], self._starts[number - 1], "    ") for number in numbers]
        first = Edit(indents[0].start, indents[0].end, f"{' ' * stmt.col_offset}{header}\n    ")
        return [first, *indents[1:], *([self.after(stmt, *footer)] if footer else [])]

    def mutant(
        self,
        kind: str,
        node: ast.AST,
        edits: list[Edit],
        *names: str,
        reach: Iterable[ast.AST] = (),
        equivalent: str = "",
    ) -> Mutant | None:
        """The script with some edits; None where that is no Python.

        Args:
            kind: the mutator's name.
            node: where the fault is.
            edits: the changes, in any order.
            names: names whose values are wrong then.
            reach: what else the fault reaches.
            equivalent: why it is no fault.
        """
        ordered = tuple(sorted(edits, key=lambda edit: (edit.start, edit.end)))
        text, end = b"", 0
        for edit in ordered:
            text += self.bytes[end : edit.start] + edit.text.encode()
            end = edit.end
        text += self.bytes[end:]

        def line_of(place: int) -> int:
            shift = sum(
                len(edit.text.encode()) - (edit.end - edit.start) for edit in ordered if edit.end <= place
            )
            return text.count(b"\n", 0, place + shift) + 1

        try:
            compile(text, str(self.file), "exec", dont_inherit=True)
        except SyntaxError:
            return None
        spans = [(line_of(self.span(part)[0]), line_of(self.span(part)[1])) for part in reach]
        reached = frozenset(line for first, last in spans for line in range(first, last + 1))
        return Mutant(
            kind,
            self.file,
            text.decode(),
            line_of(self.span(node)[0]),
            ordered,
            self.bytes,
            frozenset(names) - {""},
            reached,
            equivalent,
        )


def word(node: ast.AST | None) -> str:
    """The last word of a name or an attribute, empty for anything else."""
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def words(node: ast.AST | None) -> list[str]:
    """All names in a node but the Accelerator's, and the attributes of `self`."""
    found = [word(part) for part in ast.walk(node)] if node is not None else []
    return [
        name
        for name in dict.fromkeys(found)
        if name not in ("", "accelerator", "self", "torch", "nn", "F", "np")
    ]


def stored(stmt: ast.stmt) -> list[str]:
    """The names that a statement writes."""
    targets = stmt.targets if isinstance(stmt, ast.Assign) else [getattr(stmt, "target", None)]
    return [name for target in targets for name in words(target)]
