"""What a script does on one way of a condition, where something else is on the other way: of the two it does one."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

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
        is_within(first, one, path) and is_within(second, other, path)
        for path, tree in trees.items()
        for test in (ast.walk(tree) if tree is not None else ())
        if isinstance(test, ast.If) and test.orelse
        if not of_all or _is_of_all(test.test)
        for first, second in ((test.body, test.orelse), (test.orelse, test.body))
    )


def chosen_by(asks: Event) -> Iterator[tuple[Sequence[ast.stmt], Sequence[ast.stmt]]]:
    """The statements to which a process comes by an answer, with those to which it comes by the other one: the ways of
    an `if` that goes by it, and what stands after one that is left.

    Args:
        asks: the question, in the test or under a name that this asks for.
    """
    tree = asks.module.tree or ast.Module([], [])
    names = {
        ast.unparse(target)
        for one in ast.walk(tree)
        if isinstance(one, ast.Assign) and asks.node in ast.walk(one.value)
        for target in one.targets
    }
    for block in (
        block for one in ast.walk(tree) for _, block in ast.iter_fields(one) if isinstance(block, list)
    ):
        for number, stmt in enumerate(block):
            if isinstance(stmt, ast.If) and any(
                part is asks.node
                or (isinstance(part, ast.Name | ast.Attribute) and ast.unparse(part) in names)
                for part in ast.walk(stmt.test)
            ):
                left = isinstance(stmt.body[-1], ast.Return | ast.Raise)
                other = stmt.orelse or (block[number + 1 :] if left else [])
                yield stmt.body, other
                yield other, stmt.body


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


def is_within(block: Sequence[ast.stmt], event: Event, path: str) -> bool:
    """Whether an event, or a call that leads to it, stands in a block of a module.

    Args:
        block: statements that stand one after the other.
        event: the event.
        path: of the module.
    """
    if not block:
        return False
    end = block[-1].end_lineno or block[-1].lineno
    places = [(event.module.path, event.line), *event.via]
    return any(where == path and block[0].lineno <= line <= end for where, line in places)
