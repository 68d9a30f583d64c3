"""Dictionaries that are spread into others, as `{**defaults, **read}`: what comes later replaces what stands there."""

from __future__ import annotations

import ast

from accelify.heap.containers import element, keys_in, overwrite, put
from accelify.heap.run import Run
from accelify.heap.values import Container, Value


def spread_into(run: Run, made: Container, value: Value, node: ast.AST) -> None:
    """Write what one dictionary has into another.

    Args:
        run: the run.
        made: the one that is made.
        value: the one that is spread: where its keys are not known, each may replace any that is there.
        node: the display.
    """
    if not value.refs or any(keys_in(ref) is None for ref in value.of(Container)):
        one = element(run, value, node)
        if one.place.is_same:
            overwrite(run, made, one, Value())
        put(run, made, one)
    for name, inner in [item for ref in value.of(Container) for item in ref.looked_into().items()]:
        if name.startswith("["):
            run.store.set(made, name, inner)
