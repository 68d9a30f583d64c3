"""`torch.autograd.grad`: the gradients of one process, which no wrapper averages."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from accelify.domains.placement import function
from accelify.heap.containers import array_of, container, put
from accelify.heap.model_parameters import owners
from accelify.heap.values import NONE, TENSOR, Value

if TYPE_CHECKING:
    from accelify.heap.interpreter import Interpreter


def gradients(
    engine: Interpreter, args: Sequence[Value], keywords: Mapping[str, Value], node: ast.AST
) -> Value:
    """What a call gives: gradients by rows have rows, those by parameters are linear in what they are of.

    Args:
        engine: the interpreter.
        args: by position: what is differentiated, and by what.
        keywords: the other arguments.
        node: the call.
    """
    of = args[0] if args else keywords.get("outputs", NONE)
    by = args[1] if len(args) > 1 else keywords.get("inputs", NONE)
    if engine.run.checks and any(True for _ in owners(engine.run, by)):
        engine.run.meet("gradients", node, engine.run.segment(node), [by])
    places = array_of(of), array_of(by)
    place = function(places[:1], linearly=True) if places[1].is_same else function(places, rowwise=True)
    made = container(engine.run, "tuple")
    put(engine.run, made, engine.run.made(node, place, of, by, type_=TENSOR))
    return Value(refs=(made,), type="tuple")
