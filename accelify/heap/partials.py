"""`functools.partial`: a function of the project with some of its arguments."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from accelify.heap.values import Bound, Function, Ref, Value

if TYPE_CHECKING:
    from accelify.heap.interpreter import Interpreter


def partial_of(
    engine: Interpreter, args: Sequence[Value], keywords: Mapping[str, Value], node: ast.AST
) -> Value | None:
    """What `partial(function, ...)` gives; the function itself where it is none of the project."""
    if not args:
        return None
    called, given = args[0], args[1:]
    if len(given) > 1 or not all(isinstance(ref, Function) for ref in called.refs):
        return called
    content_of = engine.memory.identities.content_of
    made = list[Ref]()
    for function in called.of(Function):
        site = node, function, tuple((name, content_of(value)) for name, value in keywords.items())
        taking = engine.run.allocate(site, partial(_taking, function, keywords)) if keywords else function
        made.append(Bound(given[0], taking) if given else taking)
    return replace(called, refs=tuple(made))


def _taking(function: Function, keywords: Mapping[str, Value]) -> Function:
    """The same function with other defaults."""
    made = Function(function.node, function.module, function.outer, function.name)
    made.defaults = {**function.defaults, **{name: value.plain() for name, value in keywords.items()}}
    made.decorators = function.decorators
    return made
