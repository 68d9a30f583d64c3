"""Which line of the original corresponds to a line of the converted script, and back."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from difflib import SequenceMatcher
from pathlib import Path

from accelify.verify.observe.sites import Site

# The comment that a notebook's script has in front of each cell.
_CELL = re.compile(r"# %% cell +(\d+)\s*")


class LineMap:
    """Lines of converted files and of their originals.

    Args:
        pairs: path of a file to its text before and after. Files that are not here are the same in both.
        written: the file on disk that has the text after conversion, by the path that it runs under. Where there is
            none, a line is named by the original's, which can be opened. None: all are where they run.
    """

    def __init__(
        self, pairs: dict[Path, tuple[str, str]], written: Mapping[Path, Path] | None = None
    ) -> None:
        self._written = None if written is None else {str(path): file for path, file in written.items()}
        self._texts = {str(path): texts for path, texts in pairs.items()}
        self._to_original = {str(path): _matched(after, before) for path, (before, after) in pairs.items()}
        self._to_converted = {
            path: {new: old for old, new in reversed(lines.items())}
            for path, lines in self._to_original.items()
        }

    def original(self, site: Site | None) -> Site | None:
        """The original's place of a place in the converted script; None for one that the original does not have."""
        return _mapped(self._to_original, site)

    def converted(self, site: Site | None) -> Site | None:
        """The converted script's place of a place in the original; None for one that went."""
        return _mapped(self._to_converted, site)

    def number(self, site: Site) -> int:
        """The line under which a user finds a place of the converted script."""
        file, line = site
        if not self._is_named_by_original(file):
            return line
        known = self._to_original[file]
        # A line that convert adds follows one that was there.
        return next((known[before] for before in range(line, 0, -1) if before in known), 1)

    def file(self, site: Site) -> str:
        """The name of the file in which a user finds a place of the converted script."""
        return os.path.basename((self._written or {}).get(site[0], site[0]))

    def named(self, site: Site) -> str:
        """A place of the converted script as `train.py line 3`, of a notebook as `train.ipynb cell 2 line 3`."""
        version = 0 if self._is_named_by_original(site[0]) else 1
        return f"{self.file(site)} {self._within(site[0], self.number(site), version)}"

    def named_original(self, site: Site) -> str:
        """A place of the original, in the same words."""
        return f"{os.path.basename(site[0])} {self.within_original(site)}"

    def within_original(self, site: Site) -> str:
        """The same without the file."""
        return self._within(*site, 0)

    def _is_named_by_original(self, file: str) -> bool:
        return self._written is not None and file in self._to_original and file not in self._written

    def _within(self, file: str, line: int, version: int) -> str:
        texts = self._texts.get(file) if file.endswith(".ipynb") else None
        above = [] if texts is None else texts[version].splitlines()[: line - 1]
        for start in range(len(above), 0, -1):
            if (cell := _CELL.fullmatch(above[start - 1])) is not None:
                return f"cell {cell[1]} line {line - start}"
        return f"line {line}"


ORIGINAL = LineMap({})
"""Of places in the original: each is where it stands."""


def _mapped(table: dict[str, dict[int, int]], site: Site | None) -> Site | None:
    if site is None:
        return None
    file, line = site
    lines = table.get(file)
    if lines is None:
        return (file, line)
    return (file, lines[line]) if line in lines else None


def _matched(after: str, before: str) -> dict[int, int]:
    """Line of `after` to line of `before`, from 1. Changed lines go to the most similar one of the same stretch."""
    new, old = after.splitlines(), before.splitlines()
    # Indentation changes where a guard is put around a statement; the statement stays what it was.
    stripped = [line.strip() for line in new], [line.strip() for line in old]
    found: dict[int, int] = {}
    for kind, i, i_end, j, j_end in SequenceMatcher(None, *stripped, autojunk=False).get_opcodes():
        if kind == "equal":
            found.update({i + k + 1: j + k + 1 for k in range(i_end - i)})
        elif kind == "replace":
            found.update(_similar(stripped[0], stripped[1], range(i, i_end), range(j, j_end)))
    return found


def _similar(new: list[str], old: list[str], lines: range, candidates: range) -> dict[int, int]:
    """Pairs of changed lines, in order, by how much of their text they share."""
    found: dict[int, int] = {}
    start = candidates.start
    for line in lines:
        ratios = [
            (SequenceMatcher(None, new[line], old[k], autojunk=False).ratio(), -k)
            for k in range(start, candidates.stop)
        ]
        best = max(ratios, default=(0.0, 0))
        if best[0] >= 0.5:
            found[line + 1] = 1 - best[1]
            start = 1 - best[1]
    return found
