"""What a value says of the rank that has it, or of a file: `is_main_process`, whether a path is there."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from accelify.domains.placement import Kind, Placement, function, own
from accelify.heap.containers import array_of, count_of
from accelify.heap.run import Run
from accelify.heap.values import (
    FOUND_FLAG,
    MAIN_FLAG,
    MISSING_FLAG,
    ONE_FLAG,
    OTHERS_FLAG,
    PART,
    PROCESSES,
    RANK,
    SEVERAL,
    SOME_FLAG,
    UNSET,
    Container,
    Value,
)

# Whether a file is there.
ASKED = frozenset({FOUND_FLAG, MISSING_FLAG})
# Which of the ranks one is.
FLAGS = frozenset({MAIN_FLAG, OTHERS_FLAG, ONE_FLAG})
# What `not` makes of one.
OPPOSITES = {
    MAIN_FLAG: OTHERS_FLAG,
    OTHERS_FLAG: MAIN_FLAG,
    FOUND_FLAG: MISSING_FLAG,
    MISSING_FLAG: FOUND_FLAG,
}


def truth(value: Value) -> bool | None:
    """Whether a value is true as a condition, None where that is not known."""
    if value.const is not UNSET and not value.refs:
        return bool(value.const)
    # The number of processes, what is there where they are several, and a rank as the text of a launcher.
    several = value.type in (SEVERAL, PROCESSES) or (value.type == RANK and value.text)
    return True if several else None


def flagged(run: Run, node: ast.AST, value: Value) -> Value:
    """What the main process alone has, as a condition."""
    if value.optional != MAIN_FLAG or not (value.refs or value.type == "builtins.str"):
        return value
    text = f"`{run.segment(node)}` is there on the main process alone"
    return Value(own(), run.reason(node, text, value.why), type=MAIN_FLAG)


def asked(run: Run, node: ast.AST, value: Value) -> Value:
    """What the main process alone has, or a rank, as a condition that stands by itself."""
    if value.type == RANK and not value.text:
        if isinstance(node, ast.Compare):
            # With a number it parts them elsewhere; with what changes, each of them has its turn.
            fixed = any(isinstance(side, ast.Constant) for side in (node.left, *node.comparators))
            return Value(own(), run.reason(node, f"`{run.segment(node)}`", None if fixed else value))
        return Value(own(), run.reason(node, f"`{run.segment(node)}`"), type=OTHERS_FLAG)
    count = count_of(run, value, node) if run.checks and value.of(Container) else None
    return flagged(run, node, value) if count is None or count.place.is_same else count


def _as_condition(run: Run, node: ast.AST, value: Value) -> Placement:
    """What a value is as a condition: a list is true by how many it has, whatever they are."""
    if not run.checks or not value.of(Container):
        return array_of(value)
    count = count_of(run, value, node)
    return value.place if count is None else count.place


def together(run: Run, node: ast.BoolOp | ast.BinOp, values: Sequence[Value]) -> Value:
    """`and` or `or` of several values."""
    both = isinstance(node.op, ast.And | ast.BitAnd)
    values = [flagged(run, node, value) for value in values]
    types = [value.type for value in values]
    rest = [value for value in values if value.type not in FLAGS]
    if run.checks and (both or all(value.place.is_uniform for value in rest)):
        # `not distributed or rank == 0`: of one process that is alone it is true as well.
        if len(found := set(types) & FLAGS) == 1:
            why = next(value.why for value in values if value.type in found)
            made_by = why.parents if why is not None else ()
            return Value(own(), run.reason(node, f"`{run.segment(node)}`", *made_by), type=found.pop())
    # Of what goes by the time, such as whether a file named by it is there, the main process alone is asked.
    plain = all(value.place.is_uniform or (both and value.place.kind is Kind.CLOCK) for value in rest)
    if MAIN_FLAG in types and OTHERS_FLAG not in types and plain:
        text = "only the main process" if both else "not on every rank"
        return Value(own(), run.reason(node, text), type=MAIN_FLAG if both else SOME_FLAG)
    refs = tuple(dict.fromkeys(ref for value in values for ref in value.refs))
    made = run.made(node, function(_as_condition(run, node, value) for value in values), *values)
    asked = MISSING_FLAG if both else FOUND_FLAG
    if asked in types or set(types) == {OPPOSITES[asked]}:
        return Value(made.place, made.why, type=asked if asked in types else OPPOSITES[asked])
    kinds = (one for one in types if one not in ("", PART, *ASKED) and (both or one not in FLAGS))
    return Value(made.place, made.why, refs, next(kinds, ""))
