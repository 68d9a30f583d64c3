"""What a launch says: on standard error, each message on a line of its own."""

from __future__ import annotations

import os
import sys


def say(message: str) -> None:
    """Print a message of the launcher."""
    print(f"{fresh_line()}accelify launch: {message}", file=sys.stderr, flush=True)


def fresh_line() -> str:
    """What brings a terminal's cursor to the beginning of a line, whatever a progress bar has left of one.

    As many blanks as a line has: from its beginning they fill it, from anywhere else they reach into the next one.
    """
    if not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        return ""
    try:
        columns = os.get_terminal_size(sys.stderr.fileno()).columns
    except (OSError, ValueError):
        return ""
    return f"{' ' * columns}\r\033[K"
