"""How long schedules are: in rounds of each process, as their steps are, or in steps of the original."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import TYPE_CHECKING

from accelify.domains.placement import Kind, same
from accelify.heap.containers import array_of
from accelify.heap.values import COUNTER, Function, Value

if TYPE_CHECKING:
    from accelify.heap.interpreter import Interpreter


def length_of(engine: Interpreter, given: Sequence[Value], node: ast.AST) -> Value | None:
    """What says that a schedule is as long as the rounds of each process, None where nothing does.

    Args:
        engine: the engine.
        given: what the schedule is made of: a number of steps, or the function that gives a factor for each step.
        node: where it is made.
    """
    for value in given:
        place = array_of(value)
        if place.kind is Kind.SAME and not place.is_same:
            return value
        if any(isinstance(getattr(ref, "method", ref), Function) for ref in value.refs):
            engine.run.store.begin()
            with engine.run.quiet():
                of_steps, of_rounds = [
                    array_of(engine.calls.call(value, [count], {}, node))
                    for count in (Value(type="builtins.int"), Value(same(1), type=COUNTER))
                ]
            engine.run.store.undo()
            if of_rounds.is_same and not of_steps.is_same:
                return value
    return None
