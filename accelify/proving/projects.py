"""The engine over what `convert` has written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from accelify.configuration import user_rows
from accelify.conversion import CONVERTED, Conversion
from accelify.dropped_moves import MovePlace
from accelify.findings import Finding
from accelify.heap.modules import text_of
from accelify.heap.moved import MarksOf
from accelify.knowledge import Knowledge
from accelify.obligations import Validation, validate
from accelify.project import Imports
from accelify.proving.findings import Named
from accelify.proving.moves import Moves
from accelify.proving.origins import Places
from accelify.rule_codes import PUBLIC
from accelify.source import split_lines

# What a module has that is also started by itself.
_GUARD = "__main__"
# Some three seconds' worth of statements.
BUDGET = 30_000


def entries_of(
    conversions: Sequence[Conversion], scripts: Iterable[Path], imports: Imports | None = None
) -> list[Conversion]:
    """The conversions of scripts that are started by themselves, those of standard input among them.

    Args:
        conversions: of the scripts and of the modules that they import.
        scripts: those that were looked at.
        imports: what files import, where modules are to be left out: those that another of the scripts imports and that
            have no block for being started. What they do is proved of the scripts that call them, with what these pass.
    """
    places = {path.resolve() for path in scripts}
    entries = [
        one for one in conversions if one.status == CONVERTED and (one.place is None or one.place in places)
    ]
    if imports is None or len(entries) == 1:
        return entries
    reached = {id(one): imports.reached(one.place) for one in entries if one.place is not None}
    for one in reversed(entries):
        others = [other for other in entries if other is not one]
        # Of those that import each other the first stays.
        if _GUARD not in one.source.text and any(one.place in reached.get(id(other), ()) for other in others):
            entries = others
    return entries


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
    moves = Moves(known, entry)
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
