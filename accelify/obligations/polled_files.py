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
    {"file.write", "file.append", "file.delete", "file.move", "folder.make", "folder.delete"}
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
    if name and not written and _ends_loop(event) and not _is_of_round(asks):
        text = f"some ranks leave a loop in which all meet: `{event.name}` is asked by each process at another moment"
        why = Reason(f"`{asks.name}`", asks.module.path, asks.line)
        yield made(event, "all ranks", Status.NAMED, text, why)


def _changes(event: Event) -> bool:
    """Whether it writes to a file or takes it away, or opens it for that."""
    return event.kind in _CHANGES or (event.kind == "file.read" and event.detail.startswith(("w", "x", "a")))


def _within(event: Event, around: set[int]) -> bool:
    return any(loop.number in around for loop in event.loops)


def _ends_loop(event: Event) -> bool:
    """Whether the way on which the file is there leaves the loop, or the function."""
    tree = event.module.tree
    for one in ast.walk(tree) if tree is not None else ():
        if isinstance(one, ast.If) and one.test is event.node:
            return any(map(_leaves, one.body)) or any(map(_leaves, one.orelse))
        if isinstance(one, ast.While) and one.test is event.node:
            return True
    return False


def _leaves(stmt: ast.AST) -> bool:
    if isinstance(stmt, (*_LOOPS, *_FUNCTIONS)):
        return False
    return isinstance(stmt, ast.Break | ast.Return) or any(map(_leaves, ast.iter_child_nodes(stmt)))


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
