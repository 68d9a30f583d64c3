"""Steps of optimizers, schedules and scalers: a library's, and those of classes of the script that derive from them."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from accelify.heap.containers import array_of
from accelify.heap.model_parameters import LOOSE
from accelify.heap.models import is_prepared
from accelify.heap.schedules import EARLY, is_of_all, length_of, written_length
from accelify.heap.values import Function, Instance, Value

if TYPE_CHECKING:
    from accelify.heap.interpreter import Interpreter
    from accelify.heap.run import Run

STEPPING = frozenset({"optimizer", "scheduler", "scaler"})


def stepped(
    engine: Interpreter,
    instance: Instance,
    args: Sequence[Value],
    keywords: Mapping[str, Value],
    node: ast.AST,
) -> None:
    """Note a step.

    Args:
        engine: the engine.
        instance: what steps.
        args, keywords: what it is given; a closure is called.
        node: the call.
    """
    run = engine.run
    kind = "schedule" if instance.kind == "scheduler" else "step"
    length = _length(engine, instance, node)
    counted = "plain" if length is None else "whole" if is_of_all(length) else "own rounds"
    detail = "prepared" if instance.prepared else counted
    known = instance.wrapped.of(Instance) if instance.wrapped is not None else []
    if kind == "schedule" and any(_is_short(run, _length(engine, one, node)) for one in known):
        detail = "fast"
    elif any(run.read(one, EARLY) is not None for one in known):
        detail = "early"
    inner = instance.wrapped.of(Instance) if instance.wrapped is not None and run.at_model else []
    unwrapped = inner or ([instance] if detail == "plain" else [])
    if detail in ("plain", "prepared") and any(_is_bare(run, one) for one in unwrapped):
        detail = "bare"
    for closure in [value for value in [*args, *keywords.values()] if value.of(Function)]:
        engine.calls.call(closure, [], {}, node)
    if any(run.read(one, LOOSE) is not None for one in (instance, *known)):
        run.meet("loose", node, f"{instance.kind}.step")
    run.meet(kind, node, f"{instance.kind}.step", [*args, *keywords.values()], detail=detail)


def _length(engine: Interpreter, schedule: Instance, node: ast.AST) -> Value | None:
    """The length of a schedule; functions that give its rates read what is there as they are called."""
    rates = engine.run.read(schedule, "#rates")
    if rates is not None:
        return length_of(engine, [rates], node)
    found = engine.run.read(schedule, "#length")
    return written_length(engine, schedule, node) if found is None and engine.run.checks else found


def _is_short(run: Run, length: Value | None) -> bool:
    """Whether a schedule's length is in rounds of each process."""
    return length is not None and (not run.checks or array_of(length).degree == 1)


def _is_bare(run: Run, optimizer: Instance) -> bool:
    """Whether it steps parameters of models none of which is prepared."""
    of = run.read(optimizer, "#of")
    models = of.of(Instance) if of is not None else []
    return not all(is_prepared(run, model) for model in models)
