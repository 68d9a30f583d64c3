"""Models that are trained and not prepared, or past their wrapper, which averages gradients only after its forward."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache

from accelify.heap.model_parameters import STEPPED
from accelify.heap.run import Event
from accelify.heap.values import Class, Instance
from accelify.obligations.obligation import Obligation, Status
from accelify.obligations.runs import has_accelerator
from accelify.obligations.sinks import made

# Collectives that put no gradients together.
_NO_GRADIENTS = frozenset(
    "barrier clip_grad_norm_ clip_grad_value_ gather_for_metrics monitored_barrier save_state wait_for_everyone".split()
)
_PARAMETERS = re.compile(r"\bparameters\(")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_ALONE = "torch.autograd.grad"
_UNRECORDED = re.compile(r"\b(?:no_grad|inference_mode)\b")


def unprepared(event: Event, events: Sequence[Event]) -> Iterator[Obligation]:
    """A model that is trained and not prepared.

    Args:
        event: the call of a model.
        events: all of the script.
    """
    if not event.loops or not event.loops[-1].trains or is_without_gradients(event, events):
        return
    if is_averaged_by_hand(event, events):
        return
    if _goes_past(event, events):
        text = (
            "this goes past the wrapper of a model that nothing calls here: its gradients are not averaged over the "
            "processes; let the model's forward do it, and call the wrapper"
        )
        by, one = _way_past(event), made(event, "prepared", Status.NAMED, text)
        yield one if by is None else replace(one, path=by[0], line=by[1], column=1)
        return
    if is_trained_in(event, events) and event.detail != "stepped":
        return
    past = "a model that is not prepared" if has_accelerator(event, events) else "the model past its wrapper"
    if any(other.detail == "bare" and other.loops[-1:] == event.loops[-1:] for other in events):
        return  # the finding is at the step
    is_apart = event.detail == "stepped" and not has_accelerator(event, events)
    if is_apart or not any(other.kind == "wrapped" for other in events):
        past = "a model that has no wrapper"
    text = f"`{event.name}` calls {past}: its gradients are not averaged over the processes"
    one = made(event, "prepared", Status.NAMED, text)
    # In a method of the model itself it is the call of the method that goes past the wrapper.
    by = event.via[0] if event.via and event.name.startswith("self(") else None
    yield one if by is None else replace(one, path=by[0], line=by[1], column=1)


def in_no_model(event: Event, events: Sequence[Event]) -> Iterator[Obligation]:
    """An optimizer that steps parameters of no model, beside those of one whose gradients are averaged.

    Args:
        event: the step.
        events: all of the script.
    """
    if any(other.kind == "wrapped" for other in events) and not is_averaged_by_hand(event, events):
        text = (
            "the optimizer steps parameters that are in no wrapped model: their gradients are not averaged over the "
            "processes; make them a part of the model before it is wrapped"
        )
        yield made(event, "prepared", Status.NAMED, text)


def is_averaged_by_hand(event: Event, events: Sequence[Event]) -> bool:
    """Whether the processes put something together in the rounds of an event that may be gradients."""
    return any(
        other.kind == "collective"
        and _is_in_round(other, event)
        and other.name.rpartition(".")[2] not in _NO_GRADIENTS
        and _may_be_of_gradients(other, events)
        for other in events
    )


def _may_be_of_gradients(event: Event, events: Sequence[Event]) -> bool:
    """Whether a function that leads to a collective asks for gradients, or goes over parameters."""
    trees = {other.module.path: other.module.tree for other in events if other.module.tree is not None}
    places = [(event.module.path, event.line), *event.via]
    return any(
        path not in trees or any(first <= line <= last for first, last in _of_gradients(trees[path]))
        for path, line in places
    )


@lru_cache(maxsize=64)
def _of_gradients(tree: ast.Module) -> list[tuple[int, int]]:
    """The first and last lines of the functions and calls of a module that ask for gradients, and of its loops over
    parameters."""
    return [
        (one.lineno, one.end_lineno or one.lineno)
        for one in ast.walk(tree)
        if (isinstance(one, ast.For) and _PARAMETERS.search(ast.unparse(one.iter)))
        or (isinstance(one, (*_FUNCTIONS, ast.Call)) and any(map(_is_gradient, ast.walk(one))))
    ]


def _is_gradient(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "grad" and ast.unparse(node) != _ALONE


def _is_in_round(other: Event, event: Event) -> bool:
    """Whether one event is met in the rounds that another is met in, or for each of several there: parameters, and no
    batches of an evaluation."""
    around = len(event.loops)
    return other.loops[:around] == event.loops and not any(
        loop.shared or loop.whole is not None for loop in other.loops[around:]
    )


def is_trained_in(event: Event, events: Sequence[Event]) -> bool:
    """Whether a wrapped model is called for its gradients in the loop that an event stands in."""
    around = event.loops[-1].number if event.loops else 0
    return any(
        other.kind == "forward" and not other.detail and other.loops and other.loops[-1].number == around
        for other in events
        if not _is_shown_alone(other, events)
    )


def _is_shown_alone(event: Event, events: Sequence[Event]) -> bool:
    """Whether a call is one process's, to look at what comes out, without gradients."""
    return any(one.parts_ranks for one in event.guards) and is_without_gradients(event, events)


def _goes_past(event: Event, events: Sequence[Event]) -> bool:
    """Whether a call is of a part of a wrapped model that is trained, where nothing calls the wrapper."""
    whole, around = _wholes(event), {loop.number for loop in event.loops}
    of_forwards = (ref for other in events if other.kind == "forward" for ref in _wholes(other))
    stepped = {ref for ref in of_forwards if STEPPED in ref.fields}
    if stepped and not stepped & whole:
        return False  # the optimizer is of another model
    called = (
        other
        for other in events
        if other.kind == "forward" and not other.detail and around & {loop.number for loop in other.loops}
        if not _is_shown_alone(other, events)
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


def _way_past(event: Event) -> tuple[str, int] | None:
    """Where a method of the wrapped model is called from outside of it, which is a call of a part of it; None
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
            around_it = [item.context_expr for item in one.items]
        elif isinstance(one, _FUNCTIONS):
            around_it = one.decorator_list
        else:
            continue
        if any(_UNRECORDED.search(ast.unparse(part)) for part in around_it):
            found.append((one.lineno, one.end_lineno or one.lineno))
    return found
