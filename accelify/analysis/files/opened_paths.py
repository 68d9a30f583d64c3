"""Files that a path of pathlib opens for writing: `(folder / "run.log").open("a")`."""

from __future__ import annotations

import ast
import re

from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import call_argument

_WRITING = re.compile(r"[wax][bt+]{0,2}")


def opened_path(script: ScriptModel, call: ast.Call) -> ast.expr | None:
    """The path that a call of its `open` opens for writing; None where it opens none."""
    func = call.func
    if not isinstance(func, ast.Attribute) or func.attr != "open" or script.callees(call):
        return None
    if (script.qualname(func) or "pathlib").partition(".")[0] != "pathlib":
        return None  # `gzip.open(path)`
    mode = call_argument(call, 0, "mode")
    writes = isinstance(mode, ast.Constant) and _WRITING.fullmatch(str(mode.value))
    return func.value if writes else None
