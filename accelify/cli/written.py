"""Findings of `convert` at their places in the files that it has just written."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from accelify.conversion import Conversion
from accelify.findings import Finding
from accelify.proving.origins import Origins

# Outside of code: `(12)`, `(helpers.py:12)`, `(called at helpers.py:12)`, `line 12`, `helpers.py, lines 12, 15`.
_NAMED = re.compile(
    r"(?P<before>\((?:called at )?)(?:(?P<file>[\w./\\-]+\.py):)?(?P<line>\d+)\)"
    r"|(?:(?P<other>[\w./\\-]+\.py), )?\blines? (?P<lines>\d+(?:, \d+)*)"
)


class Written:
    """Where lines of the originals are now.

    Args:
        conversions: all that are reported.
        targets: where their files were written; those that are missing were not.
    """

    def __init__(self, conversions: Sequence[Conversion], targets: Mapping[Path, Path]) -> None:
        self._targets = targets
        self._lines: dict[str, Origins] = {}
        for conversion in conversions:
            path = conversion.source.path
            if path is not None and path in targets and path.suffix != ".ipynb":
                # Asked the other way round: of a line of the original, where it is in what was written.
                self._lines[str(path)] = Origins(conversion.new_text, conversion.source.text)

    def at(self, conversion: Conversion, finding: Finding) -> Finding:
        """The finding with its place, and the lines that its message names, in the files on the disk."""
        lines = self._lines.get(finding.path)
        if lines is None:
            return conversion.source.place(finding)
        line, column = lines.of(finding.line, finding.column)
        message = self._with_lines_of_now(finding.message, finding.path)
        path = str(self._targets[Path(finding.path)])
        return replace(finding, path=path, line=line, column=column, message=message)

    def note(self, conversion: Conversion, text: str) -> str:
        """A note about a script, with the lines that it names in the files on the disk."""
        path = str(conversion.source.path)
        return self._with_lines_of_now(text, path) if path in self._lines else text

    def _with_lines_of_now(self, text: str, path: str) -> str:
        return "`".join(
            part if number % 2 else _NAMED.sub(lambda found: self._moved(found, path), part)
            for number, part in enumerate(text.split("`"))
        )

    def _moved(self, found: re.Match[str], path: str) -> str:
        if found["lines"]:
            named = path if found["other"] is None else self._file(found["other"])
            if named not in self._lines:
                return found[0]
            numbers = [str(self._lines[named].of(int(one))[0]) for one in found["lines"].split(", ")]
            return f"{found[0].removesuffix(found['lines'])}{', '.join(numbers)}"
        file = path if found["file"] is None else self._file(found["file"])
        if file not in self._lines:
            return found[0]
        line = self._lines[file].of(int(found["line"]))[0]
        name = f"{found['file']}:" if found["file"] else ""
        return f"{found['before']}{name}{line})"

    def _file(self, name: str) -> str:
        named = [one for one in self._lines if Path(one).as_posix().endswith(f"/{name}") or one == name]
        return named[0] if len(named) == 1 else ""
