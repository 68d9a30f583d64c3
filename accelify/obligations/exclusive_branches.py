"""What a script does on one way of a condition, where something else is on the other way: of the two it does one."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from accelify.heap.run import Event


def is_on_another_way(one: Event, other: Event) -> bool:
    """Whether of two events a run of the script has one at most, by an `if` with one on each of its ways.

    Args:
        one: an event.
        other: another one.
    """
    if {loop.number for loop in one.loops} & {loop.number for loop in other.loops}:
        return False  # the other way may be that of another round
    trees = {event.module.path: event.module.tree for event in (one, other)}
    return any(
        _is_within(first, one, path) and _is_within(second, other, path)
        for path, tree in trees.items()
        for test in (ast.walk(tree) if tree is not None else ())
        if isinstance(test, ast.If) and test.orelse
        for first, second in ((test.body, test.orelse), (test.orelse, test.body))
    )


def _is_within(block: Sequence[ast.stmt], event: Event, path: str) -> bool:
    """Whether an event, or a call that leads to it, stands in a block of a module."""
    end = block[-1].end_lineno or block[-1].lineno
    places = [(event.module.path, event.line), *event.via]
    return any(where == path and block[0].lineno <= line <= end for where, line in places)
