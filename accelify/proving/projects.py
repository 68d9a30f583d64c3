"""The engine over what `convert` has written."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path

from accelify.configuration import user_rows
from accelify.conversion import CONVERTED, Conversion
from accelify.dropped_moves import DroppedMove, MovePlace
from accelify.findings import Finding
from accelify.heap.modules import text_of
from accelify.heap.moved import Mark, Marks, MarksOf
from accelify.knowledge import Knowledge
from accelify.obligations import Validation, validate
from accelify.proving.findings import Named
from accelify.proving.origins import Places
from accelify.rule_codes import PUBLIC
from accelify.same_lines import same_lines
from accelify.source import split_lines

# Some three seconds' worth of statements.
BUDGET = 30_000
_BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")


# Where moves that `convert` dropped stood, in what it has written.


class _Moves:
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


def entries_of(conversions: Sequence[Conversion], scripts: Iterable[Path]) -> list[Conversion]:
    """The conversions of scripts that are started by themselves, those of standard input among them."""
    places = {path.resolve() for path in scripts}
    return [
        one for one in conversions if one.status == CONVERTED and (one.place is None or one.place in places)
    ]


def validated(
    text: str,
    path: Path | None,
    texts: Mapping[Path, str],
    budget: int | None = None,
    moves: MarksOf | None = None,
) -> Validation:
    """Run the engine over a script.

    Args:
        text: the script.
        path: its file, None for one from standard input.
        texts: of files that are read as they will be written, by their resolved paths.
        budget: how many statements are gone through; the engine's where None.
        moves: where a conversion dropped moves to the device, in the tree of a file.

    Raises:
        SourceError: for rows of the user's configuration that make no sense.
    """

    def read(file: Path) -> str | None:
        known = texts.get(file.resolve())
        return known if known is not None else text_of(file)

    return validate(text, path, Knowledge(user_rows(path)), read, budget, moves=moves)


def settled(conversions: Sequence[Conversion], entry: Conversion, budget: int = BUDGET) -> Validation:
    """Go through one converted script as `prove` does, and add nothing to what is left.

    The moves that it dropped and `prepare` does not replace come back.
    """
    known = {one.place: one for one in conversions}
    texts = {place: one.new_text for place, one in known.items() if place is not None}
    moves = _Moves(known, entry)
    found = validated(entry.new_text, entry.source.path, texts, budget, moves.within if moves.any else None)
    unproved = frozenset(
        move for move, use in found.moves.items() if use is not None and isinstance(move, MovePlace)
    )
    if unproved and _retained(conversions, entry, unproved):
        return settled(conversions, entry, budget)
    return found


def prove(
    conversions: Sequence[Conversion],
    entry: Conversion,
    budget: int = BUDGET,
    said: set[tuple[str, Path, int]] | None = None,
) -> Validation:
    """Go through one converted script, and add what is not proved of it to the findings that are left.

    Findings of which it proves the contrary go, and what concerns the script as a whole becomes its notes.

    Args:
        conversions: all that are converted together.
        entry: that of the script.
        budget: how many statements are gone through.
        said: what was noted of which lines, of scripts of one run; see `Named.notes`.

    Raises:
        SourceError: for rows of the user's configuration that make no sense.
    """
    found = settled(conversions, entry, budget)
    known = {one.place: one for one in conversions}
    named = Named(found, Places(entry, known), conversions)
    untrue = named.refuted
    for conversion in conversions:
        conversion.remaining = [one for one in conversion.remaining if one not in untrue]
    unmarked = [conversion for conversion in conversions if _unmarked(conversion, untrue)]
    if unmarked:
        return prove(conversions, entry, budget, said)  # of the lines as they stand now
    for conversion, finding in list(named.findings()):
        if finding not in conversion.remaining:
            conversion.remaining.append(finding)
    for conversion in conversions:
        conversion.remaining.sort()
    entry.notes += named.notes(said)
    return found


def _retained(conversions: Sequence[Conversion], entry: Conversion, moves: frozenset[MovePlace]) -> bool:
    """Convert a script again, with the moves that prepare does not replace; returns whether that was done."""
    again, known = entry.again, {one.place: one for one in conversions}
    if again is None:
        return False
    found = again(moves)
    if any(one.status != CONVERTED or one.place not in known for one in found):
        return False
    if 1 < len(found) < len(known):
        # Another script may share the modules: they are written for both, and this would be for one of them.
        return False
    if all(one.new_text == known[one.place].new_text for one in found):
        return False
    for one in found:
        vars(known[one.place]).update(vars(one))
    return True


def _unmarked(conversion: Conversion, untrue: Iterable[Finding]) -> bool:
    """Take out the comments that say what an untrue finding says; returns whether there were any."""
    marks = {(one.code, one.mark) for one in untrue} - {(one.code, one.mark) for one in conversion.remaining}
    lines = split_lines(conversion.new_text)
    begins = tuple(f"# TODO(accelify {PUBLIC.get(code, code)}): {mark}" for code, mark in marks if mark)
    left = [line for line in lines if not line.lstrip().startswith(begins)]
    conversion.new_text = "".join(left)
    return len(left) < len(lines)
