"""Log files that are started again: who opens one empties it for all the others."""

from __future__ import annotations

import ast

from accelify.analysis.scopes import Scope
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import call_argument

# What opens a log file: where the mode is among the arguments, and its name.
_OPENING = {
    "logging.basicConfig": (1_000, "filemode"),
    "logging.FileHandler": (1, "mode"),
    "logging.handlers.RotatingFileHandler": (1, "mode"),
    "logging.handlers.WatchedFileHandler": (1, "mode"),
}
BEGUN_LOGS = frozenset(_OPENING)
# Other libraries log through Python's logging.
_LOGGING = ("logging.", "absl.logging.", "glog.")


def begins_log(call: ast.Call, name: str | None) -> ast.Constant | None:
    """The mode of a call that opens a log file and empties it; None where it goes on with what is there.

    Args:
        call: the call.
        name: the qualified name of what it calls.
    """
    place = _OPENING.get(name or "")
    mode = call_argument(call, *place) if place is not None else None
    return mode if isinstance(mode, ast.Constant) and str(mode.value).startswith("w") else None


def is_log_method(script: ScriptModel, func: ast.expr) -> bool:
    """Whether something is the method of a logger that logs a line, short of a warning."""
    if not isinstance(func, ast.Attribute) or func.attr not in ("info", "debug", "log"):
        return False
    if (script.qualname(func) or "").startswith(_LOGGING):
        return True
    return any(one.qualname == "logging.getLogger" for one in script.entities(func.value))


def by_default(call: ast.Call, scope: Scope) -> ast.Call:
    """A call in which what a function takes for the mode has its default: `open(path, mode)` under `mode="w"`.

    Args:
        call: the call, which is left as it is.
        scope: the function with the call.
    """
    mode = call_argument(call, 1, "mode")
    if not isinstance(mode, ast.Name) or scope.kind != "function":
        return call
    default = next((value for a, value in scope.defaults() if a.arg == mode.id), None)
    if not isinstance(default, ast.Constant):
        return call
    args = [default if one is mode else one for one in call.args]
    keywords = [ast.keyword(kw.arg, default if kw.value is mode else kw.value) for kw in call.keywords]
    return ast.copy_location(ast.Call(call.func, args, keywords), call)
