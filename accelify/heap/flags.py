"""What a value says of the rank that has it, or of a file: `is_main_process`, whether a path is there."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from accelify.domains.placement import function, own
from accelify.heap.containers import array_of
from accelify.heap.run import Run
from accelify.heap.values import (
    FOUND_FLAG,
    MAIN_FLAG,
    MISSING_FLAG,
    OTHERS_FLAG,
    PART,
    SOME_FLAG,
    Value,
)

# Whether a file is there.
ASKED = frozenset({FOUND_FLAG, MISSING_FLAG})
# What `not` makes of one.
OPPOSITES = {
    MAIN_FLAG: OTHERS_FLAG,
    OTHERS_FLAG: MAIN_FLAG,
    FOUND_FLAG: MISSING_FLAG,
    MISSING_FLAG: FOUND_FLAG,
}


def together(run: Run, node: ast.BoolOp, values: Sequence[Value]) -> Value:
    """`and` or `or` of several values."""
    both = isinstance(node.op, ast.And)
    types = [value.type for value in values]
    rest = [value for value in values if value.type not in (MAIN_FLAG, OTHERS_FLAG)]
    if run.checks and all(value.place.is_uniform for value in rest):
        # `not distributed or rank == 0`: of one process that is alone it is true as well.
        if (found := set(types) & {MAIN_FLAG, OTHERS_FLAG}) and len(found) == 1:
            return Value(own(), run.reason(node, f"`{run.segment(node)}`"), type=found.pop())
    if MAIN_FLAG in types and OTHERS_FLAG not in types and all(value.place.is_uniform for value in rest):
        text = "only the main process" if both else "not on every rank"
        return Value(own(), run.reason(node, text), type=MAIN_FLAG if both else SOME_FLAG)
    refs = tuple(dict.fromkeys(ref for value in values for ref in value.refs))
    made = run.made(node, function(array_of(value) for value in values), *values)
    asked = MISSING_FLAG if both else FOUND_FLAG
    if asked in types or set(types) == {OPPOSITES[asked]}:
        return Value(made.place, made.why, type=asked if asked in types else OPPOSITES[asked])
    plain = (one for one in types if one not in ("", PART, *ASKED))
    return Value(made.place, made.why, refs, next(plain, ""))
