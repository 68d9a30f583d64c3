"""Parts of wrapped models that are called past the wrapper, which puts gradients together only after its forward."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from functools import lru_cache

from accelify.heap.run import Event
from accelify.heap.values import Class, Instance

_UNRECORDED = re.compile(r"\b(?:no_grad|inference_mode)\b")


def goes_past(event: Event, events: Sequence[Event]) -> bool:
    """Whether a call is of a part of a wrapped model, where nothing calls the wrapper.

    Args:
        event: the call of a model that is not prepared by itself.
        events: all of the script.
    """
    whole, around = _wholes(event), {loop.number for loop in event.loops}
    called = (
        other
        for other in events
        if other.kind == "forward" and not other.detail and around & {loop.number for loop in other.loops}
    )
    return bool(whole) and not any(_wholes(other) & whole for other in called)


def is_without_gradients(event: Event, events: Sequence[Event]) -> bool:
    """Whether an event, or a call that led to it, stands under `torch.no_grad()`."""
    trees = {other.module.path: other.module.tree for other in events if other.module.tree is not None}
    places = [(event.module.path, event.line), *event.via]
    return any(
        first <= line <= last
        for path, line in places
        if path in trees
        for first, last in _without_gradients(trees[path])
    )


def way_past(event: Event) -> tuple[str, int] | None:
    """Where a method of the wrapped model is called from outside of it, which comes to a call of a part of it; None
    where the part itself is called."""
    spans = [
        (cls.module.path, cls.node.lineno, cls.node.end_lineno or cls.node.lineno)
        for whole in _wholes(event)
        for cls in (whole.cls.line_up() if whole.cls is not None else ())
        if isinstance(cls, Class)
    ]
    places = [(event.module.path, event.line), *event.via]
    within = [
        number
        for number, (path, line) in enumerate(places[:-1])
        if any(path == of and first <= line <= last for of, first, last in spans)
    ]
    return places[within[-1] + 1] if within else None


def _wholes(event: Event) -> set[Instance]:
    return {ref for value in event.shown for ref in value.of(Instance)}


@lru_cache(maxsize=64)
def _without_gradients(tree: ast.Module) -> list[tuple[int, int]]:
    """The first and last lines of what a module does without gradients."""
    found = list[tuple[int, int]]()
    for one in ast.walk(tree):
        if isinstance(one, ast.With | ast.AsyncWith):
            said = [item.context_expr for item in one.items]
        elif isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef):
            said = one.decorator_list
        else:
            continue
        if any(_UNRECORDED.search(ast.unparse(part)) for part in said):
            found.append((one.lineno, one.end_lineno or one.lineno))
    return found
