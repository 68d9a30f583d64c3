"""What a script does on one way of a condition, where something else is on the other way: of the two it does one."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from accelify.heap.run import Event


def is_on_another_way(one: Event, other: Event, *, of_all: bool = False) -> bool:
    """Whether of two events a run of the script has one at most, by an `if` with one on each of its ways.

    Args:
        one: an event.
        other: another one.
        of_all: on all processes together: by an `if` of which all go the same way.
    """
    if {loop.number for loop in one.loops} & {loop.number for loop in other.loops}:
        return False  # the other way may be that of another round
    trees = {event.module.path: event.module.tree for event in (one, other)}
    return any(
        _is_within(first, one, path) and _is_within(second, other, path)
        for path, tree in trees.items()
        for test in (ast.walk(tree) if tree is not None else ())
        if isinstance(test, ast.If) and test.orelse
        if not of_all or _is_of_all(test.test)
        for first, second in ((test.body, test.orelse), (test.orelse, test.body))
    )


def _is_of_all(test: ast.expr) -> bool:
    """Whether a test asks for a setting, or for what the main process hands out: no process has an answer of its own,
    such as whether it finds a file."""
    if isinstance(test, ast.BoolOp):
        return all(map(_is_of_all, test.values))
    if isinstance(test, ast.UnaryOp):
        return _is_of_all(test.operand)
    parts = list(ast.walk(test))
    calls = [ast.unparse(one.func) for one in parts if isinstance(one, ast.Call)]
    if calls:
        return calls[0].endswith("broadcast_object_list")
    return isinstance(test, ast.Attribute) or any(isinstance(one, ast.Constant) for one in parts)


def _is_within(block: Sequence[ast.stmt], event: Event, path: str) -> bool:
    """Whether an event, or a call that leads to it, stands in a block of a module."""
    end = block[-1].end_lineno or block[-1].lineno
    places = [(event.module.path, event.line), *event.via]
    return any(where == path and block[0].lineno <= line <= end for where, line in places)
