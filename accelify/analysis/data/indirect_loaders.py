"""Loaders whose batches reach a loop through an iterable: a generator, an enumerate, a list of batches."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import TYPE_CHECKING

from accelify.analysis import values as v
from accelify.analysis.syntax import dotted, names_in, target_names, walk
from accelify.analysis.values import Entity, Mapping, Sequence, Value, Values

if TYPE_CHECKING:
    from accelify.analysis.script import ScriptModel

# Functions that yield the items of their argument, counted or paired.
_HANDING = frozenset({"enumerate", "zip", "list", "tuple", "reversed"})


def loaders_in(contained: Values, holds_results: Callable[[Sequence], bool]) -> set[Entity]:
    """The loaders among some values, and those whose batches they pass on.

    Args:
        contained: what an expression can evaluate to.
        holds_results: whether a list holds what an evaluation found, whose rows are no batches.
    """
    found: set[Entity] = set()
    queue, seen = list(contained), set(contained)
    while queue:
        value = queue.pop()
        inner: Values = set()
        if isinstance(value, Sequence) and not isinstance(value, Mapping):
            if holds_results(value) or _holds_parts(value):
                continue
            # A generator, an enumerate or a zip that passes on the batches of loaders.
            handed = set(value.rest)
            for pair in value.rest:
                if isinstance(pair, Sequence):
                    handed |= pair.any()
            handed |= batches_in({one for one in handed if isinstance(one, Mapping)})
            for batch in handed:
                if isinstance(batch, Entity) and batch.kind == v.BATCH:
                    inner |= batch.links.get("loader", set())
        elif isinstance(value, Entity) and value.kind == v.LOADER:
            found.add(value)
        elif isinstance(value, Entity) and (
            value.kind == v.ITERATOR or (value.kind == v.UNKNOWN and "[]for" in value.uses)
        ):
            inner = value.links.get("iterated", set())
        queue += inner - seen
        seen |= inner
    return found


def _holds_parts(made: Sequence) -> bool:
    """Whether a comprehension iterates over one batch: `[view.to(device) for view in views]` holds its parts."""
    queue: list[Value] = [made]
    seen: Values = set()
    while queue:
        one = queue.pop()
        if is_batch(one):
            return True
        if isinstance(one, Sequence) and one not in seen:
            seen.add(one)
            queue += one.gone_through
    return False


def puts_part_in(script: ScriptModel, call: ast.Call) -> bool:
    """Whether a call puts a part of a batch into a list: `for view in views: moved.append(view.to(device))`."""
    if not call.args:
        return False
    part = call.args[-1]
    for loop in script.enclosing_loops(call):
        if isinstance(loop, ast.For) and names_in(part) & set(target_names(loop.target)):
            sources = gone_through(loop.target, loop.iter, part)
            return any(is_batch(one) for source in sources for one in script.values(source))
    return False


def gone_through(target: ast.expr, source: ast.expr, part: ast.expr) -> list[ast.expr]:
    """What a loop iterates over to get a part: both of `zip(a, b)`, and `a` where the part is one of `a[k]`."""
    counted = set(target_names(target))
    found = [n.value for n in walk(part) if isinstance(n, ast.Subscript) and names_in(n.slice) & counted]
    queue = [source]
    while queue:
        one = queue.pop()
        if isinstance(one, ast.Call) and dotted(one.func) in _HANDING:
            queue += one.args
        else:
            found.append(one)
    return found


def batches_in(contained: Values) -> set[Entity]:
    """The batches among some values, and those whose parts these copy: `{k: v.cuda() for k, v in batch.items()}`."""
    found: set[Entity] = set()
    queue, seen = list(contained), set(contained)
    while queue:
        value = queue.pop()
        inner: Values = set()
        if isinstance(value, Mapping):
            inner = value.get(object())
        elif isinstance(value, Sequence):
            inner = value.any()
        elif is_batch(value):
            assert isinstance(value, Entity)
            found.add(value)
        elif isinstance(value, Entity) and _goes_through_parts(value):
            inner = value.links.get("sources", set())
        queue += inner - seen
        seen |= inner
    return found


def _goes_through_parts(value: Entity) -> bool:
    """Whether a tensor is what `batch.items()` or `batch.values()` gives, which a copy of the batch is made of."""
    func = value.site.func if isinstance(value.site, ast.Call) else None
    return value.kind == v.TENSOR and getattr(func, "attr", "") in ("items", "values")


def is_batch(value: Value) -> bool:
    """Whether a value is what a loader gives."""
    return isinstance(value, Entity) and value.kind == v.BATCH


def only_from_lists(script: ScriptModel, loaders: set[Entity]) -> bool:
    """Whether all loops that train read what was taken out of some loaders before, and put into lists."""
    training = [
        loop for loop, contained in script.loader_loops if contained & loaders and script.trains(loop)
    ]
    read = {t for loop, contained in script.loader_loops if loop in training for t in contained}
    return (
        bool(training)
        and loaders <= read
        and all(_goes_through_lists(script, loop.iter) for loop in training)
    )


def _goes_through_lists(script: ScriptModel, node: ast.expr) -> bool:
    """Whether what a loop iterates over is filled call by call: `held` of `for x, y in zip(held["x"], held["y"])`."""
    contained = [w for n in walk(node) if isinstance(n, ast.expr) for w in script.values(n)]
    if any(isinstance(w, Entity) and w.kind in (v.LOADER, v.ITERATOR) for w in contained):
        return False
    return any(isinstance(w, Sequence) and w.filled for w in contained)
