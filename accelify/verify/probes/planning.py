"""Which demands of a converted script are not proved, where to look at them, and where the original has that call."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from accelify.notebook import SUFFIX
from accelify.verify.compare.verdict import Site
from accelify.verify.converted import Converted
from accelify.verify.lines import LineMap
from accelify.verify.probes.inserting import ARGUMENTS, EXITS, OUTCOME, Row, places
from accelify.verify.unseen import is_seen

if TYPE_CHECKING:
    from accelify.obligations import Validation

RESULT = "result"
"""The demand that an assumption makes: what a call returned is the same on every rank."""
_ASSUMED = " gives the same on every rank"


@dataclass(frozen=True)
class Demand:
    """What has to hold at one place of the converted script.

    Args:
        number: of the probe there.
        demand: as the obligation has it, or RESULT.
        sink: what the script does there.
        file: relative to the script's folder.
        line: from 1.
        place: file and line as a user finds them.
        sentence: what was found instead of a proof.
        site: the statement, as observers name it.
        seen: whether there is a place for a probe.
    """

    number: int
    demand: str
    sink: str
    file: str
    line: int
    place: str
    sentence: str
    site: Site
    seen: bool


@dataclass
class Plan:
    """The demands, and by file the places of probes in the converted script and in the original; the statements of the
    converted script that show figures of the main process's share; the statements that others can see, by kind."""

    demands: list[Demand] = field(default_factory=list)
    copy: dict[str, list[Row]] = field(default_factory=dict)
    original: dict[str, list[Row]] = field(default_factory=dict)
    shares: set[Site] = field(default_factory=set)
    sinks: list[tuple[str, Site]] = field(default_factory=list)


def plan(script: Path, converted: Converted, lines: LineMap) -> Plan:
    """Go through the converted script with the engine, and choose where to look.

    A figure that is shown inside the training loop, and a time, is none that a run could settle.

    Raises:
        SourceError: rows of the user's configuration make no sense.
    """
    from accelify.heap.modules import text_of
    from accelify.proving import validated

    script = Path(os.path.realpath(script))
    if script.suffix not in (".py", SUFFIX):
        return Plan()
    texts = {Path(os.path.realpath(path)): pair for path, pair in converted.texts().items()}
    after = {path: pair[1] for path, pair in texts.items()}
    found = validated(after.get(script) or text_of(script) or "", script, after)
    return _Planner(script, texts, lines).plan(found)


class _Planner:
    def __init__(self, script: Path, texts: dict[Path, tuple[str, str]], lines: LineMap) -> None:
        self.script = script
        self.texts = texts
        self.lines = lines
        self.result = Plan()
        self._trees: dict[tuple[str, int], ast.Module | None] = {}
        self._numbers: dict[tuple[str, int, int, str], int] = {}

    def plan(self, found: Validation) -> Plan:
        from accelify.obligations import Status
        from accelify.obligations.sinks import STEPS

        for one in found.obligations:
            if is_seen(one.sink):
                self.result.sinks.append((one.sink, self._site(self._file(one.path), one.line)))
            if one.status is Status.LOOP and not one.found.endswith(STEPS):
                self.result.shares.add(self._site(self._file(one.path), one.line))
            if one.status is Status.NAMED or (one.status is Status.ASSUMED and one.sink == "backward"):
                sentence = one.sentence(lambda path, line: self.lines.place((self._file(path), line)))
                self._add(one.demand, one.sink, one.path, one.line, one.column, sentence)
        for reason in found.assumptions:
            name = reason.text.removesuffix(_ASSUMED)
            if name != reason.text:
                for call in self._calls(self._file(reason.path), reason.line, 1):
                    if _last_name(call) == name.rpartition(".")[2]:
                        column = call.col_offset + 1
                        self._add(RESULT, "assumption", reason.path, reason.line, column, reason.text)
                        break
        return self.result

    def _add(self, demand: str, sink: str, path: str, line: int, column: int, sentence: str) -> None:
        file = self._file(path)
        shown = OUTCOME if demand == RESULT else EXITS if sink == "leave" else ARGUMENTS
        key = (file, line, column, shown)
        tree = self._tree(file, 1)
        row = (line, column, len(self._numbers), shown)
        node = next((node for node, _ in places(tree, [row])), None) if tree is not None else None
        if key not in self._numbers:
            self._numbers[key] = row[2]
            if node is not None:
                self.result.copy.setdefault(file, []).append(row)
                self._in_original(file, node, row)
        site = self._site(file, line)
        self.result.demands.append(
            Demand(
                self._numbers[key],
                demand,
                sink,
                path,
                line,
                self.lines.named((file, line)),
                sentence,
                site,
                node is not None,
            )
        )

    def _site(self, file: str, line: int) -> Site:
        """The statement of the converted script that a line belongs to, as observers name it."""
        tree = self._tree(file, 1)
        return file, _statement(tree, line) if tree is not None else line

    def _in_original(self, file: str, node: ast.AST, row: Row) -> None:
        """Where the original makes the same call: the same name, as many on the line, as manyth there."""
        site = self.lines.original((file, row[0]))
        if site is None or not isinstance(node, ast.Call):
            return
        mine, theirs = (
            [call for call in self._calls(file, line, side) if _last_name(call) == _last_name(node)]
            for line, side in ((row[0], 1), (site[1], 0))
        )
        if len(mine) == len(theirs):
            other = next(b for a, b in zip(mine, theirs, strict=True) if a is node)
            self.result.original.setdefault(file, []).append((site[1], other.col_offset + 1, *row[2:]))

    def _calls(self, file: str, line: int, side: int) -> list[ast.Call]:
        tree = self._tree(file, side)
        nodes = ast.walk(tree) if tree is not None else ()
        found = [node for node in nodes if isinstance(node, ast.Call) and node.lineno == line]
        return sorted(found, key=lambda call: (call.col_offset, -(call.end_col_offset or 0)))

    def _tree(self, file: str, side: int) -> ast.Module | None:
        """The tree of a file before conversion (side 0) or after it."""
        if (file, side) not in self._trees:
            self._trees[file, side] = _parsed(self._text(Path(file), side))
        return self._trees[file, side]

    def _text(self, path: Path, side: int) -> str:
        if path in self.texts:
            return self.texts[path][side]
        try:
            return path.read_text(encoding="utf-8-sig")
        except (OSError, ValueError):
            return ""

    def _file(self, path: str) -> str:
        return os.path.realpath(self.script.parent / path)


def _parsed(text: str) -> ast.Module | None:
    try:
        return ast.parse(text.removeprefix("\ufeff"))
    except (SyntaxError, ValueError, RecursionError):
        return None


def _statement(tree: ast.Module, line: int) -> int:
    """The first line of the innermost statement that a line belongs to."""
    around = [node.lineno for node in _statements(tree) if node.lineno <= line <= (node.end_lineno or 0)]
    return max(around, default=line)


def _statements(tree: ast.Module) -> Iterator[ast.stmt]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.stmt))


def _last_name(call: ast.Call) -> str:
    function: Any = call.func
    return function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")
