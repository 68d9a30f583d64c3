"""How long schedules are: in rounds of each process, as their steps are, or in steps of the original."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import TYPE_CHECKING

from accelify.domains.placement import Kind, same
from accelify.heap.containers import array_of, elements
from accelify.heap.values import COUNTER, Function, Ref, Value

if TYPE_CHECKING:
    from accelify.heap.interpreter import Interpreter


def rates_of(engine: Interpreter, given: Sequence[Value]) -> Value | None:
    """The functions that a schedule calls at each step, None where there are none.

    Args:
        engine: the engine.
        given: what the schedule is made of.
    """
    every = [one for value in given for one in (value, *(elements(engine.run, value) or ()))]
    found = dict.fromkeys(ref for value in every for ref in value.refs if _is_function(ref))
    return Value(refs=tuple(found)) if found else None


def length_of(engine: Interpreter, given: Sequence[Value], node: ast.AST) -> Value | None:
    """What says that a schedule is as long as the rounds of each process, None where nothing does.

    Args:
        engine: the engine.
        given: what the schedule is made of: a number of steps, or the functions that give a factor for each step.
        node: where it is made or, as its functions read what is there when they are called, where it is stepped.
    """
    for value in given:
        place = array_of(value)
        if place.kind is Kind.SAME and not place.is_same:
            return value
        for ref in value.refs if any(map(_is_function, value.refs)) else ():
            engine.run.store.begin()
            with engine.run.quiet():
                of_steps, of_rounds = [
                    array_of(engine.calls.call(Value(refs=(ref,)), [count], {}, node))
                    for count in (Value(type="builtins.int"), Value(same(1), type=COUNTER))
                ]
            engine.run.store.undo()
            if of_rounds.is_same and not of_steps.is_same:
                return value
    return None


def _is_function(ref: Ref) -> bool:
    return isinstance(getattr(ref, "method", ref), Function)
