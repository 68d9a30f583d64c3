"""Two edits of one text as one: for a module that two scripts share, each needing different edits there."""

from __future__ import annotations

import difflib

_Hunk = tuple[int, int, list[str]]


def merged(original: str, one: str, other: str) -> str | None:
    """The text with both edits, an edit that both make only once; None where they change the same lines differently."""
    lines = original.splitlines(keepends=True)
    hunks = _hunks(lines, one)
    for hunk in _hunks(lines, other):
        if hunk in hunks:
            continue
        if any(_meet(hunk, known) for known in hunks):
            return None
        hunks.append(hunk)
    for start, end, new in sorted(hunks, key=lambda h: (h[0], h[1]), reverse=True):
        lines[start:end] = new
    return "".join(lines)


def _hunks(lines: list[str], edited: str) -> list[_Hunk]:
    after = edited.splitlines(keepends=True)
    matcher = difflib.SequenceMatcher(None, lines, after, autojunk=False)
    return [
        (start, end, after[first:last])
        for tag, start, end, first, last in matcher.get_opcodes()
        if tag != "equal"
    ]


def _meet(one: _Hunk, other: _Hunk) -> bool:
    return one[0] <= other[1] and other[0] <= one[1]
