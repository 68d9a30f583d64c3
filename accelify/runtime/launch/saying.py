"""What a launch says: on standard error, each message on a line of its own."""

from __future__ import annotations

import os
import re
import sys
import textwrap


def say(message: str) -> None:
    """Print a message of the launcher."""
    print(f"{fresh_line()}{_fitted(f'accelify launch: {message}')}", file=sys.stderr, flush=True)


def fresh_line() -> str:
    """What brings a terminal's cursor to the beginning of a line, whatever a progress bar has left of one.

    As many blanks as a line has: from its beginning they fill it, from anywhere else they reach into the next one.
    """
    columns = _columns()
    return f"{' ' * columns}\r\033[K" if columns else ""


def _columns() -> int:
    """Those of a terminal; 0 where it is none, or one that obeys no codes."""
    if not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        return 0
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns
    except (OSError, ValueError):
        return 0


def _fitted(message: str) -> str:
    """A message broken at blanks to fit the terminal, but for commands between backquotes."""
    if not (columns := _columns()):
        return message
    whole = re.sub("`[^`]*`", lambda command: command[0].replace(" ", "\0"), message)
    lines = [
        textwrap.fill(line, columns, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)
        for line in whole.split("\n")
    ]
    return "\n".join(lines).replace("\0", " ")
