"""Colours of the terminal, without a library: every report is plain text unless it is asked for colours."""

from __future__ import annotations

import re

_STYLING = re.compile(r"\x1b\[[\d;]*m")
# What stands between two blanks; blanks between backquotes do not count.
_PIECE = re.compile(r"(?:^|(?<= ))(?:`[^`]*`|[^ `])*")
_CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}


def styled(text: str, style: str, colour: bool) -> str:
    """`text` in `style` (names of `_CODES`, blank-separated) where `colour` is asked for, else as it is."""
    if not colour or not text:
        return text
    return f"\x1b[{';'.join(_CODES[name] for name in style.split())}m{text}\x1b[0m"


def wrapped(text: str, width: int) -> str:
    """A line broken at blanks to fit a terminal, what follows indented by four more; as it is where `width` is 0.

    Code and commands between backquotes are not broken, so that they can be copied.
    """
    words = text.lstrip(" ").split(" ")
    if text.count("`") % 2 == 0:
        words = _PIECE.findall(text.lstrip(" "))
    lines = [text[: len(text) - len(text.lstrip(" "))] + words[0]]
    indent = " " * (len(text) - len(text.lstrip(" ")) + 4)
    for word in words[1:]:
        line = f"{lines[-1]} {word}"
        if width and len(_STYLING.sub("", line)) > width:
            lines.append(indent + word)
        else:
            lines[-1] = line
    return "\n".join(lines)


def counted(number: int, noun: str, several: str | None = None) -> str:
    """`1 edit`, `2 edits`; `several` where the plural is not made by an s."""
    return f"{number} {noun}" if number == 1 else f"{number} {several or f'{noun}s'}"


def duration(minutes: int) -> str:
    """Minutes of a person's work as `5 min` or `1 h 20 min`."""
    hours, rest = divmod(minutes, 60)
    if not hours:
        return f"{rest} min"
    return f"{hours} h {rest} min" if rest else f"{hours} h"
