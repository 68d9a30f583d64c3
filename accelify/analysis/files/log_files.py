"""Log files that are begun anew: who opens one empties it for all the others."""

from __future__ import annotations

import ast

from accelify.analysis.syntax import call_argument

# What opens a log file: where the mode stands among the arguments, and its name.
_OPENING = {
    "logging.basicConfig": (1_000, "filemode"),
    "logging.FileHandler": (1, "mode"),
    "logging.handlers.RotatingFileHandler": (1, "mode"),
    "logging.handlers.WatchedFileHandler": (1, "mode"),
}
BEGUN_LOGS = frozenset(_OPENING)


def begins_log(call: ast.Call, name: str | None) -> ast.Constant | None:
    """The mode of a call that opens a log file and empties it; None where it goes on with what is there.

    Args:
        call: the call.
        name: the qualified name of what it calls.
    """
    place = _OPENING.get(name or "")
    mode = call_argument(call, *place) if place is not None else None
    return mode if isinstance(mode, ast.Constant) and str(mode.value).startswith("w") else None


__all__ = ["BEGUN_LOGS", "begins_log"]
