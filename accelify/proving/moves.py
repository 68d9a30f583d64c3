"""Where moves that `convert` dropped stood, in what it has written."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path

from accelify.common_lines import same_lines
from accelify.conversion import Conversion
from accelify.dropped_moves import DroppedMove
from accelify.heap.moved import Mark, Marks
from accelify.source import split_lines

_BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")


class Moves:
    """Finds them in the trees that the engine goes through.

    Args:
        conversions: of the files, by their places.
        entry: that of the script.
    """

    def __init__(self, conversions: Mapping[Path | None, Conversion], entry: Conversion) -> None:
        self._conversions = conversions
        self._entry = entry

    @property
    def any(self) -> bool:
        """Whether there are some."""
        return any(one.dropped for one in (*self._conversions.values(), self._entry))

    def within(self, path: Path | None, tree: ast.Module) -> Marks:
        """What stands where something was moved, in the tree of a file as it is written."""
        conversion = self._conversions.get(path.resolve()) if path is not None else self._entry
        if conversion is None or not conversion.dropped:
            return {}
        return _Written(conversion, tree).marks()


class _Written:
    """One file, before and after."""

    def __init__(self, conversion: Conversion, tree: ast.Module) -> None:
        self.dropped = conversion.dropped
        old, new = (
            [line.strip() for line in split_lines(text)]
            for text in (conversion.lowered or conversion.source.text, conversion.new_text)
        )
        self._now = {i + 1: j + 1 for i, j in same_lines(old, new) if i < len(old) and new[j]}
        self._old = sorted(self._now)
        self._tree = tree

    def marks(self) -> Marks:
        found: dict[ast.AST, list[Mark]] = {}
        for move in self.dropped:
            for node, mark in self._of(move):
                found.setdefault(node, []).append(mark)
        return found

    def _of(self, move: DroppedMove) -> Iterator[tuple[ast.AST, Mark]]:
        stays = self._stays(move)
        if stays is not None:
            yield stays, Mark(move.place, move.receiver)
            return
        for line, follows in move.beside if move.text else ():
            stmt = self._statements.get(self._now.get(line, 0))
            if stmt is not None:
                expr = ast.parse(move.text, mode="eval").body
                for part in ast.walk(expr):
                    ast.copy_location(part, stmt)
                yield stmt, Mark(move.place, move.receiver, expr, after=not follows)
                return

    def _stays(self, move: DroppedMove) -> ast.expr | None:
        """What was moved, where it still stands in its statement or in what came in its place."""
        like = ast.parse(move.receiver, mode="eval").body
        wanted = ast.dump(like)
        for stmt in self._in_place_of(move):
            for node in ast.walk(stmt):
                if isinstance(node, type(like)) and ast.dump(node) == wanted:
                    return node
        return None

    def _in_place_of(self, move: DroppedMove) -> Sequence[ast.stmt]:
        if move.first in self._now:
            same = self._statements.get(self._now[move.first])
            return [same] if same is not None else []
        before = max((line for line in self._old if line < move.first), default=0)
        after = min((line for line in self._old if line > move.first), default=0)
        first = self._now[before] if before else 0
        last = self._now[after] if after else len(self._statements) + max(self._statements, default=0)
        return [stmt for line, stmt in self._statements.items() if first < line < last]

    @cached_property
    def _statements(self) -> dict[int, ast.stmt]:
        """Statements by their first line, the outer ones."""
        found: dict[int, ast.stmt] = {}
        around: list[ast.AST] = [self._tree]
        while around:
            node = around.pop()
            if isinstance(node, ast.stmt):
                found.setdefault(node.lineno, node)
            # What is no block has no statements in it.
            blocks = [getattr(node, name, ()) for name in _BLOCKS]
            around += [one for block in blocks if isinstance(block, list) for one in block]
        return dict(sorted(found.items()))
