"""Loops in which ranks meet, and which end as soon as a file is there: each process asks for it at another moment."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from accelify.domains.reasons import Reason
from accelify.heap.paths import file_of
from accelify.heap.run import Event
from accelify.obligations.obligation import Obligation, Status
from accelify.obligations.sinks import made

_MEETINGS = frozenset({"backward", "step", "collective"})
_CHANGES = frozenset(
    {"file.write", "file.append", "file.delete", "file.move", "folder.fill", "folder.make", "folder.delete"}
)
_LOOPS = (ast.For, ast.While, ast.AsyncFor)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


def polled(event: Event, events: Sequence[Event]) -> Iterator[Obligation]:
    """A condition of whether a file is there that ends a loop, where nothing in the script writes that file.

    Args:
        event: the condition.
        events: all of the script.
    """
    number = next((n for n, other in enumerate(events) if other is event), 0)
    asks = next((one for one in reversed(events[:number]) if one.kind == "file.read"), None)
    around = {loop.number for loop in event.loops}
    meets = any(other.kind in _MEETINGS and _within(other, around) for other in events)
    if asks is None or not meets or any(guard.parts_ranks for guard in event.guards):
        return
    name = file_of(asks.path)
    written = any(_changes(other) and file_of(other.path) == name for other in events)
    if name and not written and _ends_loop(event, events) and not _is_of_round(asks):
        text = f"some ranks leave a loop in which all meet: `{event.name}` is asked by each process at another moment"
        why = Reason(f"`{asks.name}`", asks.module.path, asks.line)
        yield made(event, "all ranks", Status.NAMED, text, why)


def _changes(event: Event) -> bool:
    """Whether it writes to a file or takes it away, or opens it for that."""
    return event.kind in _CHANGES or (event.kind == "file.read" and event.detail.startswith(("w", "x", "a")))


def _within(event: Event, around: set[int]) -> bool:
    return any(loop.number in around for loop in event.loops)


def _ends_loop(event: Event, events: Sequence[Event]) -> bool:
    """Whether the way on which the file is there leaves the loop, or the function around, in which ranks meet."""
    tree = event.module.tree or ast.Module([], [])
    for one in ast.walk(tree):
        if isinstance(one, ast.If) and one.test is event.node:
            around = [
                each
                for each in ast.walk(tree)
                if isinstance(each, (*_LOOPS, *_FUNCTIONS)) and _holds(each, one)
            ]
            inner = max(around, key=lambda each: each.lineno, default=None)
            left = [stmt for stmt in (*one.body, *one.orelse) for stmt in _leaving(stmt)]
            if isinstance(inner, _FUNCTIONS) and not _meets(inner, events):
                left = [stmt for stmt in left if _answers(stmt)]  # by what it gives, others may leave
            return bool(left)
        if isinstance(one, ast.While) and one.test is event.node:
            return True
    return False


def _meets(function: ast.AST, events: Sequence[Event]) -> bool:
    return any(other.kind in _MEETINGS and _holds(function, other.node) for other in events)


def _holds(around: ast.AST, node: ast.AST) -> bool:
    return any(one is node for one in ast.walk(around))


def _answers(stmt: ast.stmt) -> bool:
    """Whether it gives yes or no."""
    value = stmt.value if isinstance(stmt, ast.Return) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, bool)


def _leaving(stmt: ast.AST) -> Iterator[ast.stmt]:
    if isinstance(stmt, ast.Break | ast.Return):
        yield stmt
    if not isinstance(stmt, (*_LOOPS, *_FUNCTIONS)):
        for inner in ast.iter_child_nodes(stmt):
            yield from _leaving(inner)


def _is_of_round(asks: Event) -> bool:
    """Whether it is another file in each round: its path goes by what the loop around changes."""
    tree = asks.module.tree
    loops = [one for one in ast.walk(tree) if isinstance(one, _LOOPS)] if tree is not None else []
    around = [loop for loop in loops if any(one is asks.node for one in ast.walk(loop))]
    names = {ast.unparse(one) for one in ast.walk(asks.node) if isinstance(one, ast.Name | ast.Attribute)}
    return any(
        isinstance(one, ast.Name | ast.Attribute)
        and isinstance(one.ctx, ast.Store)
        and ast.unparse(one) in names
        for loop in around
        for one in ast.walk(loop)
    )
