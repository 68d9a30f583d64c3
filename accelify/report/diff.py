"""Unified diffs that `patch` and `git apply` take; of a notebook one for each cell, to be read."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING

from accelify.report.style import styled

if TYPE_CHECKING:
    from accelify.conversion import Conversion

# `patch` ends a line at "\n" and nowhere else.
_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_STYLES = {"@": "cyan", "+": "green", "-": "red"}


def unified_diff(conversion: Conversion, *, colour: bool = False) -> bytes:
    """The change of one script, in its encoding and line ends; empty where nothing changed."""
    source = conversion.source
    shown: list[str] = []
    for name, old, new in source.parts(conversion.new_text):
        # `git apply` wants a/ and b/ before the path.
        names = f"a/{name.lstrip('/')}", f"b/{name.lstrip('/')}"
        before, after = _LINE.findall(old), _LINE.findall(new)
        if source.path is not None and source.path.suffix == ".ipynb":
            # A cell's last line ends without a line break, and nobody applies this to a file.
            before, after = _ended(before), _ended(after)
        lines = list(difflib.unified_diff(before, after, *names))
        shown += [styled(line.rstrip("\n"), "bold", colour) + "\n" for line in lines[:2]]
        shown += [_shown(line, colour) for line in lines[2:]]
    return "".join(shown).encode(source.encoding, errors="backslashreplace")


def _ended(lines: list[str]) -> list[str]:
    return [line if line.endswith("\n") else f"{line}\n" for line in lines]


def _shown(line: str, colour: bool) -> str:
    text = line.removesuffix("\n")
    if style := _STYLES.get(line[0]):
        text = styled(text, style, colour)
    return f"{text}\n" if line.endswith("\n") else f"{text}\n\\ No newline at end of file\n"
