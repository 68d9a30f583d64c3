"""How long schedules are: in rounds of each process, as their steps are, or in steps of the original."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import TYPE_CHECKING

from accelify.domains.placement import Kind, same
from accelify.heap.containers import array_of, elements
from accelify.heap.values import COUNTER, PASS, PASSES, UNDIVIDED, Function, Ref, Value

if TYPE_CHECKING:
    from accelify.heap.interpreter import Interpreter

# Numbers of batches that all processes have together.
_WHOLE = frozenset({PASS, PASSES, UNDIVIDED})


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
    """What says how long a schedule is, where it is a number of rounds: of each process or, in a script that is written
    for several, of all of them. None where nothing does.

    Args:
        engine: the engine.
        given: what the schedule is made of: a number of steps, or the functions that give a factor for each step.
        node: where it is made or, as its functions read what is there when they are called, where it is stepped.
    """
    for value in given:
        place = array_of(value)
        if place.kind is Kind.SAME and (not place.is_same or (engine.run.checks and value.type in _WHOLE)):
            return value
        for ref in value.refs if any(map(_is_function, value.refs)) else ():
            if engine.run.checks and (total := _read_in(engine, ref)) is not None:
                return total
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


def is_of_all(length: Value) -> bool:
    """Whether a schedule is as long as the rounds of all processes together, or longer."""
    place = array_of(length)
    return (length.type in _WHOLE and place.is_same) or (place.degree or 0) < 0


def _read_in(engine: Interpreter, ref: Ref) -> Value | None:
    """A number of batches of all processes that a function of the steps reads."""
    function = getattr(ref, "method", ref)
    if not isinstance(function, Function):
        return None
    bound = {one.arg for one in ast.walk(function.node) if isinstance(one, ast.arg)}
    bound |= {
        n.id for n in ast.walk(function.node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    }
    names = [n for n in ast.walk(function.node) if isinstance(n, ast.Name) and n.id not in bound]
    with engine.run.quiet():
        read = [engine.evaluate(name, function.outer) for name in names]
    return next((value for value in read if value.type in _WHOLE), None)


def _is_function(ref: Ref) -> bool:
    return isinstance(getattr(ref, "method", ref), Function)
