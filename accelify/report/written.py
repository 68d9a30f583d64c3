"""Findings of `convert` at their places in the files that it has just written."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from accelify.findings import Finding
from accelify.proving.origins import Origins
from accelify.report.sides import side_by_side

if TYPE_CHECKING:
    from accelify.conversion import Conversion

_FILE = r"[\w./\\-]+\.py"
_ITEM = rf"(?:{_FILE}:)?\d+(?:-\d+)?(?: \(`[^`]*`\))?"
# Outside of code: `(12)`, `helpers.py:12`, `line 12`, `helpers.py, lines 12, 15-18`, `lines 12 (`f`), helpers.py:3`.
_NAMED = re.compile(
    rf"`[^`]*`|(?:(?P<beside>{_FILE}), )?\blines? (?P<lines>{_ITEM}(?:, {_ITEM})*)"
    rf"|(?<=\()(?P<alone>\d+)(?=\))|(?P<place>{_FILE}:\d+(?:-\d+)?)"
)
# Edits that put a statement beside the one that the finding stands at.
_PUT_IN = ("ACC101", "ACC102", "ACC106")
_PLACE = re.compile(rf"`[^`]*`|(?:(?P<file>{_FILE}):)?\b(?P<first>\d+)(?:-(?P<last>\d+))?")


STDIN = Path("<stdin>")


def _file_of(conversion: Conversion) -> Path:
    return conversion.source.path or STDIN


class Written:
    """Where lines of the originals are now.

    Args:
        conversions: all that are reported.
        targets: where their files go; those that are missing, and scripts that were left alone, go nowhere. One that is
            printed stays where it is, and that of standard input is at `STDIN`.
    """

    def __init__(self, conversions: Sequence[Conversion], targets: Mapping[Path, Path]) -> None:
        alone = {_file_of(one) for one in conversions if one.status in ("refused", "failed")}
        self._targets = {path: target for path, target in targets.items() if path not in alone}
        self._lines: dict[str, Origins] = {}
        for conversion in conversions:
            path = _file_of(conversion)
            if path in self._targets and path.suffix != ".ipynb":
                # Asked the other way round: of a line of the original, where it is in what was written.
                self._lines[str(path)] = Origins(conversion.new_text, conversion.source.text)

    def target(self, conversion: Conversion) -> Path | None:
        """The file that the script was written to where that is another one."""
        path = conversion.source.path
        target = self._targets.get(path) if path is not None else None
        return target if target != path else None

    def at(self, conversion: Conversion, finding: Finding) -> Finding:
        """The finding with its place, and the lines that its message names, in the files on the disk."""
        lines = self._lines.get(finding.path)
        if lines is None:
            placed = conversion.source.place(finding)
            return replace(placed, path=str(self._targets.get(Path(placed.path), placed.path)))
        line, column = lines.of(finding.line, finding.column)
        message, *evidence = (
            self._with_lines_of_now(text, finding.path) for text in (finding.message, *finding.evidence)
        )
        return replace(
            finding,
            path=str(self._targets[Path(finding.path)]),
            line=line,
            column=column,
            message=message,
            evidence=tuple(evidence),
        )

    def edit(self, conversion: Conversion, finding: Finding) -> Finding:
        """What an edit has fixed, at the line that was changed or put in."""
        there = self.at(conversion, finding)
        lines = self._lines.get(finding.path)
        if lines is None or finding.part not in _PUT_IN:
            return there
        rows = (row for block in side_by_side(conversion) for row in block.rows)
        put_in = {row.new.number for row in rows if row.new is not None and row.old is None}
        last = lines.of(finding.end_line or finding.line)[0]
        if there.line not in put_in and last + 1 in put_in:
            return replace(there, line=last + 1)
        # In front of what it stands at, as the first of some statements.
        line = there.line
        while line - 1 in put_in:
            line -= 1
        return replace(there, line=line)

    def note(self, conversion: Conversion, text: str) -> str:
        """A note about a script, with the lines that it names in the files on the disk."""
        path = str(_file_of(conversion))
        return self._with_lines_of_now(text, path) if path in self._lines else text

    def _with_lines_of_now(self, text: str, path: str) -> str:
        return _NAMED.sub(lambda found: self._all_moved(found, path), text)

    def _all_moved(self, found: re.Match[str], path: str) -> str:
        places = found["lines"] or found["alone"] or found["place"]
        if not places:
            return found[0]
        beside = path if found["beside"] is None else self._file(found["beside"])
        moved = _PLACE.sub(lambda one: self._moved(one, beside), places)
        return f"{found[0].removesuffix(places)}{moved}"

    def _moved(self, found: re.Match[str], path: str) -> str:
        lines = self._lines.get(path if found["file"] is None else self._file(found["file"]))
        if found["first"] is None or lines is None:
            return found[0]
        name = f"{found['file']}:" if found["file"] else ""
        last = f"-{lines.of(int(found['last']))[0]}" if found["last"] else ""
        return f"{name}{lines.of(int(found['first']))[0]}{last}"

    def _file(self, name: str) -> str:
        named = [one for one in self._lines if Path(one).as_posix().endswith(f"/{name}") or one == name]
        return named[0] if len(named) == 1 else ""
