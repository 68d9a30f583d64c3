"""How long schedules are: in rounds of each process, as their steps are, or in steps of the original."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from accelify.domains.placement import Kind, same
from accelify.heap import misuse
from accelify.heap.containers import array_of, elements
from accelify.heap.values import (
    COUNTER,
    NONE,
    PASS,
    PASSES,
    UNDIVIDED,
    Function,
    Instance,
    Ref,
    Value,
    constant,
)

if TYPE_CHECKING:
    from accelify.heap.interpreter import Interpreter

# Numbers of batches that all processes have together.
_WHOLE = frozenset({PASS, PASSES, UNDIVIDED})
# The mark of a schedule whose warm-up is in steps of one process, and its length in steps of all.
EARLY = "#early"


def schedule_made(
    engine: Interpreter, made: Instance, args: Sequence[Value], keywords: Mapping[str, Value], node: ast.AST
) -> None:
    """Note what is known of a schedule of a library as it is made: how long it is, and which functions it calls.

    Args:
        engine: the engine.
        made: the schedule.
        args: what it is made of, by position.
        keywords: the other arguments.
        node: where it is made.
    """
    run, given = engine.run, [*args, *keywords.values()]
    rates = _rates_of(engine, given)
    length = length_of(engine, [*given, rates or NONE], node)
    run.store.set(made, "#rates", rates)
    run.store.set(made, "#length", length)
    if length is not None and run.checks:
        misuse.of_length(run, length, node)
        run.store.set(made, EARLY, constant(True) if _warms_up_early(args, keywords) else None)


def _warms_up_early(args: Sequence[Value], keywords: Mapping[str, Value]) -> bool:
    """Whether the length counts the steps of all processes, and the warm-up in it those of one."""
    numbers = [value for value in args[1:] if not value.refs]
    warm_up = keywords.get("num_warmup_steps", numbers[0] if len(numbers) > 1 else NONE)
    total = keywords.get("num_training_steps", numbers[1] if len(numbers) > 1 else NONE)
    plain = warm_up.place.is_same and not warm_up.refs and warm_up.type not in _WHOLE
    return (array_of(total).degree or 0) < 0 and plain and warm_up.const not in (None, 0)


def written_length(engine: Interpreter, schedule: Instance, node: ast.AST) -> Value | None:
    """The length of a schedule of the script's class, among what an object of it has; None of a library's."""
    known = schedule.cls is not None
    fields = [value for name, value in schedule.fields.items() if name[0] != "#"] if known else []
    counts = [one for one in fields if not one.refs and one.type != COUNTER and not array_of(one).phase]
    return length_of(engine, counts, node)


def _rates_of(engine: Interpreter, given: Sequence[Value]) -> Value | None:
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
                return Value(same(1), value.why)
    return None


def is_of_all(length: Value) -> bool:
    """Whether a schedule is as long as the rounds of all processes together, or longer."""
    place = array_of(length)
    return (length.type in _WHOLE and place.is_same) or (place.degree or 0) < 0


def _read_in(engine: Interpreter, ref: Ref) -> Value | None:
    """A number of batches that a function of the steps reads: of all processes or, where it reads none, of each."""
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
    own = (value for value in read if not value.refs and value.type != COUNTER and _is_of_each(value))
    return next((value for value in read if value.type in _WHOLE), next(own, None))


def _is_of_each(value: Value) -> bool:
    place = array_of(value)
    return place.kind is Kind.SAME and place.degree == 1


def _is_function(ref: Ref) -> bool:
    return isinstance(getattr(ref, "method", ref), Function)
