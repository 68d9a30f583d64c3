"""Losses that are means by weights of their rows: what the runtime's backward is to be given with them."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

from accelify.domains.reasons import Reason
from accelify.heap.run import Event
from accelify.heap.weighed_rows import WEIGHS
from accelify.obligations.runs import has_own_runtime

_WEIGHT = re.compile(f"{WEIGHS} `([^`]+)`$")


def is_weighed(event: Event) -> bool:
    """Whether a backward is given what the rows of its loss weigh."""
    return isinstance(event.node, ast.Call) and any(word.arg == "weight" for word in event.node.keywords)


def way_out(event: Event, events: Sequence[Event], why: Reason | None) -> str:
    """What to do about a loss that each process divides by its own weights, after "; "; "" where nothing is known."""
    weight = _WEIGHT.search(why.text) if why is not None else None
    call, tree = event.node, event.module.tree
    if why is None or weight is None or not isinstance(call, ast.Call) or not call.args or tree is None:
        return ""
    if not has_own_runtime(event, events):
        return ""
    # Names of another function are none of this one's.
    near = why.path == event.module.path and _around(tree, why.line) is _around(tree, event.line)
    text = f"{ast.unparse(call.func)}({ast.unparse(call.args[0])}, weight={weight[1] if near else '...'})"
    return f"; give backward what its rows weigh: `{text}`"


def _around(tree: ast.Module, line: int) -> ast.AST:
    """The innermost function around a line, the module where there is none."""
    functions = (one for one in ast.walk(tree) if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef))
    inside = [one for one in functions if one.lineno <= line <= (one.end_lineno or 0)]
    return max(inside, key=lambda one: one.lineno, default=tree)
