"""Which line of the original corresponds to a line of the converted script, and back."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from difflib import SequenceMatcher
from pathlib import Path

from accelify.notebook import SUFFIX, in_cell
from accelify.verify.observe.sites import Site


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
        """A place of the converted script as `train.py line 3`, of a notebook as `train.ipynb cell 2:3`."""
        return f"{self.file(site)} {self.within(site)}"

    def named_original(self, site: Site) -> str:
        """A place of the original, in the same words."""
        return f"{os.path.basename(site[0])} {self.within_original(site)}"

    def within(self, *sites: Site, most: int | None = None) -> str:
        """Places of the converted script without their files: `lines 3, 7`, or `cells 2:3, 4:1`; `most` of them."""
        found: dict[str, list[int]] = {}
        for site in sites:
            found.setdefault(site[0], []).append(self.number(site))
        versions = {file: 0 if self._is_named_by_original(file) else 1 for file in found}
        return ", ".join(
            in_words(file, numbers, self._text(file, versions[file]), most) for file, numbers in found.items()
        )

    def place(self, site: Site) -> int | str:
        """The number of a line of the converted script, or `cell 2:3`."""
        return self.within(site) if site[0].endswith(SUFFIX) else self.number(site)

    def within_original(self, site: Site) -> str:
        """The same of a place in the original."""
        return in_words(site[0], [site[1]], self._text(site[0], 0))

    def _is_named_by_original(self, file: str) -> bool:
        return self._written is not None and file in self._to_original and file not in self._written

    def _text(self, file: str, version: int) -> str:
        return self._texts[file][version] if file in self._texts else ""


def in_words(file: str, numbers: Iterable[int], text: str, most: int | None = None) -> str:
    """Lines of a script as `lines 3, 7`, of a notebook's as `cells 2:3, 4:1`.

    Args:
        file: where they are.
        numbers: from 1, at least one.
        text: of the file, as it runs.
        most: how many are named.
    """
    found = sorted(set(numbers))
    cells = [in_cell(text, number) for number in found] if file.endswith(SUFFIX) else []
    places = [f"{cell[0]}:{cell[1]}" for cell in cells if cell is not None]
    noun = "cell" if places else "line"
    places = places or list(map(str, found))
    more = " and others" if most is not None and len(places) > most else ""
    return f"{noun}{'s' * (len(places) > 1)} {', '.join(places[:most])}{more}"


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
