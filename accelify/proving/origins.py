"""Where the lines of a converted text stood in the original."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

from accelify.common_lines import paired, same_lines
from accelify.conversion import Conversion
from accelify.findings import Finding
from accelify.heap.modules import text_of
from accelify.source import split_lines


class Origins:
    """The places of a converted text in the original, whatever was indented, rewritten or put in between.

    Args:
        old: the original.
        new: the converted text; None for one that stayed as it was.
    """

    def __init__(self, old: str, new: str | None = None) -> None:
        self._same = new is None or new == old
        self._texts = old, old if new is None else new

    def of(self, line: int, column: int = 1) -> tuple[int, int]:
        """The original's line and column, in characters, of what the engine found at a line and column in bytes."""
        new = self._new[line - 1] if 0 < line <= len(self._new) else ""
        # Of a whole line it is where its first statement begins.
        column = max(len(new.encode()[: column - 1].decode(errors="ignore")), _indent(new)) + 1
        if self._same:
            return line, column
        origin = self._line(line)
        old = self._old[origin - 1] if 0 < origin <= len(self._old) else ""
        if old.strip() == new.strip():
            return origin, max(column + _indent(old) - _indent(new), 1)
        return origin, _indent(old) + 1

    @cached_property
    def _old(self) -> list[str]:
        return [one.rstrip("\r\n") for one in split_lines(self._texts[0])]

    @cached_property
    def _new(self) -> list[str]:
        return [one.rstrip("\r\n") for one in split_lines(self._texts[1])]

    @cached_property
    def _pairs(self) -> dict[int, int]:
        """Lines of the new text by number, with what they were in the old one: those that stay, and those asked for."""
        old, new = ([line.strip() for line in lines] for lines in (self._old, self._new))
        return {j + 1: i + 1 for i, j in same_lines(old, new) if new[j]}

    def _line(self, line: int) -> int:
        pairs = self._pairs
        if line in pairs:
            return pairs[line]
        before = next((j for j in range(line - 1, 0, -1) if j in pairs), 0)
        after = next((j for j in range(line + 1, len(self._new) + 1) if j in pairs), 0)
        first = pairs[before] + 1 if before else 1
        last = pairs[after] - 1 if after else len(self._old)
        if first > last:  # put in: it stands before what comes next
            return min(last + 1, len(self._old))
        until = after - 1 if after else len(self._new)
        for i, j in paired(self._old[first - 1 : last], self._new[before:until], first, before + 1):
            if j is not None:
                # What is put in stands in front of what is rewritten.
                pairs[j] = i if i is not None else max(last - (until - j), first)
        return pairs[line]


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


class Places:
    """Places that the engine names, in the files as the user knows them.

    Args:
        entry: the script that the engine went through.
        conversions: by the places of their files, all that are converted together.
    """

    def __init__(self, entry: Conversion, conversions: Mapping[Path | None, Conversion]) -> None:
        self.entry = entry
        self._conversions = conversions
        self._files: dict[str, tuple[str, Conversion | None, Origins]] = {}

    def file(self, path: str) -> tuple[str, Conversion | None, Origins]:
        """A file by the engine's name of it: how it is shown, its conversion, and where its lines come from."""
        if path not in self._files:
            own = self.entry.source.path
            shown = (
                own if own is None or path in ("", own.name) else Path(os.path.normpath(own.parent / path))
            )
            found = self.entry if shown == own else self._conversions.get(shown.resolve() if shown else None)
            if found is not None:
                origins = Origins(found.source.text, found.new_text)
            else:
                origins = Origins((text_of(shown) if shown is not None else None) or "")
            self._files[path] = str(shown) if shown is not None else "<stdin>", found, origins
        return self._files[path]

    def at(self, path: str, line: int, beside: str) -> str:
        """A line in words, with its cell, and with its file where that is not the one `beside`."""
        shown, found, origins = self.file(path)
        line = origins.of(line)[0]
        where = str(line)
        if found is not None:
            place = found.source.place(Finding(shown, line, 1, "", "", ""))
            where = f"cell {place.cell}:{place.line}" if place.cell else where
        return where if path == beside else f"{path}:{where}"
