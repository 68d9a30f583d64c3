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
    call = event.node
    if (
        weight is None
        or not isinstance(call, ast.Call)
        or not call.args
        or not has_own_runtime(event, events)
    ):
        return ""
    text = f"{ast.unparse(call.func)}({ast.unparse(call.args[0])}, weight={weight[1]})"
    return f"; give backward what its rows weigh: `{text}`"
