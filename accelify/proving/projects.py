"""The engine over what `convert` has written."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from accelify.configuration import user_rows
from accelify.conversion import CONVERTED, Conversion
from accelify.heap.modules import text_of
from accelify.knowledge import Knowledge
from accelify.obligations import Validation, validate
from accelify.proving.findings import Named
from accelify.proving.origins import Places

# Some three seconds' worth of statements.
BUDGET = 30_000


def entries_of(conversions: Sequence[Conversion], scripts: Iterable[Path]) -> list[Conversion]:
    """The conversions of scripts that are started by themselves, those of standard input among them."""
    places = {path.resolve() for path in scripts}
    return [
        one for one in conversions if one.status == CONVERTED and (one.place is None or one.place in places)
    ]


def prove(conversions: Sequence[Conversion], entry: Conversion, budget: int = BUDGET) -> Validation:
    """Go through one converted script, and add what is not proved of it to the findings that are left.

    Findings of which it proves the contrary go, and what concerns the script as a whole becomes its notes.

    Args:
        conversions: all that are converted together.
        entry: that of the script.
        budget: how many statements are gone through.

    Raises:
        SourceError: for rows of the user's configuration that make no sense.
    """
    known = {one.place: one for one in conversions}

    def read(path: Path) -> str | None:
        one = known.get(path.resolve())
        return one.new_text if one is not None else text_of(path)

    knowledge = Knowledge(user_rows(entry.source.path))
    found = validate(entry.new_text, entry.source.path, knowledge, read, budget)
    named = Named(found, Places(entry, known), conversions)
    untrue = named.refuted()
    for conversion, finding in list(named.findings()):
        if finding not in conversion.remaining:
            conversion.remaining.append(finding)
    for conversion in conversions:
        conversion.remaining = sorted(one for one in conversion.remaining if one not in untrue)
    entry.notes += named.notes()
    return found
