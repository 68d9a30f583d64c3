"""Arrays that write themselves into a file by a method: `losses.dump(f"{folder}/losses.dat")`."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable

from accelify.analysis.syntax import walk

_FIELD = re.compile(r"\{[^{}]*\}")


def _constants(node: ast.expr) -> str:
    return "".join(n.value for n in walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str))


def dumps_to_file(call: ast.Call, text: Callable[[ast.expr], str] = _constants) -> bool:
    """Whether a call is an object's `dump` method that writes a file: its argument is a path, not a step or a stream.

    Args:
        call: any whose function is not known.
        text: an expression as text, with braces for the unknown parts.
    """
    if not isinstance(call.func, ast.Attribute) or call.func.attr != "dump" or len(call.args) != 1:
        return False
    return any(sign in _FIELD.sub("", text(call.args[0])) for sign in "./")
