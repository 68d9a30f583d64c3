"""Steps of optimizers and schedules in a script that is written for several processes: whether they are prepared, and
how many of them a schedule has."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import TypeGuard

from accelify.heap.run import Event
from accelify.obligations.obligation import Obligation, Status
from accelify.obligations.runs import has_accelerator, has_own_runtime
from accelify.obligations.sinks import made

TRAINING = frozenset({"backward", "step"})


def stepped(event: Event, events: Sequence[Event]) -> Iterator[Obligation]:
    """A step of an optimizer that is not prepared.

    Args:
        event: the step.
        events: all of the script.
    """
    if event.name == "optimizer.step" and event.detail == "plain" and has_accelerator(event, events):
        text = (
            "the optimizer is not prepared: it steps in every batch that accumulates gradients, and with gradients "
            "that are multiplied by the loss scale of fp16; prepare it"
        )
        yield made(event, "prepared", Status.NAMED, text)


def scheduled(event: Event, events: Sequence[Event]) -> Iterator[Obligation]:
    """A step of a schedule that goes on too fast or too slowly.

    Args:
        event: the step.
        events: all of the script.
    """
    rounds = event.loops[-1].number if event.loops else 0
    with_steps = any(one.kind in TRAINING and one.loops and one.loops[-1].number == rounds for one in events)
    if event.detail != "plain" and any(other.detail == "schedules alone" for other in events):
        return  # a prepared one takes one step at each call
    each_window = _is_in_window(event, events)
    if event.detail == "prepared" and event.loops and not (event.shared or with_steps):
        if has_own_runtime(event, events):
            return  # it knows an epoch's step from one of a batch
        text = (
            "a prepared scheduler takes a step for every process at each call; leave one that is stepped once an "
            "epoch out of prepare"
        )
        yield made(event, "rounds", Status.NAMED, text)
    elif (event.detail == "fast" and event.shared) or (
        event.detail == "prepared" and with_steps and _is_of_own_steps(event)
    ):
        text = (
            "a prepared scheduler goes a step for every process each time, and its length is in batches of one: it is "
            "at its end after 1/N of the training"
        )
        yield made(event, "rounds", Status.NAMED, text)
    elif event.detail == "early" and event.shared:
        text = (
            "a prepared scheduler goes a step for every process each time, and its warm-up is in steps of one: it is "
            "over after 1/N of them; multiply it by the number of processes, as the length is"
        )
        yield made(event, "rounds", Status.NAMED, text)
    elif event.detail in ("plain", "whole") and event.shared and has_accelerator(event, events):
        text = "the scheduler counts the batches of one process, and goes on N times too slowly; prepare it"
        if each_window:
            text += (
                ", and give it its length in optimizer steps: once it is prepared, it steps where gradients are "
                "accumulated no further, once for each window of `accumulate`"
            )
        yield made(event, "rounds", Status.NAMED, text)
    elif event.detail not in ("plain", "whole") and each_window and _is_of_batches(event):
        text = (
            "a prepared scheduler steps once for each window of `accumulate`, and its length is in batches: it does "
            "not come to its end; divide the length by gradient_accumulation_steps"
        )
        yield made(event, "rounds", Status.NAMED, text)
    elif event.detail == "whole" and event.shared and not any(other.detail == "own size" for other in events):
        text = (
            "the schedule is as long as the batches of all processes together, and goes a step in each of one process: "
            "it ends after 1/N of its length; divide that by the number of processes"
        )
        yield made(event, "rounds", Status.NAMED, text)


def cut_short(event: Event, events: Sequence[Event]) -> Iterator[Obligation]:
    """A number of epochs that is made of a number of steps and the batches of all processes.

    Args:
        event: the range of the epochs.
        events: all of the script.
    """
    place = (event.module.path, event.line)
    trains = any(
        one.kind == "backward"
        and one.shared
        and len(one.loops) > 1
        and place in {loop.place for loop in one.loops[:-1]}
        for one in events
    )
    if trains and not any(other.detail in ("own size", "schedules alone") for other in events):
        text = (
            f"`{event.name}` counts the epochs by the batches of all processes, and each one goes through 1/N of them: "
            "the training ends after 1/N of its steps; take the length of the prepared loader"
        )
        yield made(event, "rounds", Status.NAMED, text)


def _is_in_window(event: Event, events: Sequence[Event]) -> bool:
    """Whether it stands under `with accelerator.accumulate(...)` of windows that may be longer than one batch."""
    tree = event.module.tree
    if tree is None:
        return False
    around = any(
        _is_call_of(item.context_expr, "accumulate") and one.lineno <= event.line <= (one.end_lineno or 0)
        for one in ast.walk(tree)
        if isinstance(one, ast.With)
        for item in one.items
    )
    return around and any(one.kind == "accumulates" for one in events)


def _is_call_of(node: ast.AST, name: str) -> TypeGuard[ast.Call]:
    return isinstance(node, ast.Call) and name in (
        getattr(node.func, "attr", ""),
        getattr(node.func, "id", ""),
    )


def _is_of_batches(event: Event) -> bool:
    """Whether the length of a schedule is made of a loader's, and nothing divides that."""
    tree = event.module.tree
    if tree is None or not isinstance(event.node, ast.Call) or not isinstance(event.node.func, ast.Attribute):
        return False
    values: dict[str, list[ast.expr]] = {}
    for one in (one for one in ast.walk(tree) if isinstance(one, ast.Assign)):
        for target in one.targets:
            values.setdefault(ast.unparse(target), []).append(one.value)
    waiting, seen, counts = list(values.get(ast.unparse(event.node.func.value), ())), set[str](), False
    for length in waiting:
        for part in ast.walk(length):
            if isinstance(part, ast.BinOp) and isinstance(part.op, ast.Div | ast.FloorDiv):
                return False
            counts = counts or (_is_call_of(part, "len") and bool(part.args))
            if isinstance(part, ast.Name | ast.Attribute) and (name := ast.unparse(part)) not in seen:
                seen.add(name)
                waiting += values.get(name, ())
    return counts


# What a schedule is given that is no number of steps by itself.
_EPOCHS = frozenset({"epochs", "num_epochs", "max_epochs"})


def _is_of_own_steps(event: Event) -> bool:
    """Whether a schedule is made as long as the number of own steps that ends the loops around its step, which is none
    of batches: `get_scheduler(..., num_training_steps=args.steps)`, and `while step < args.steps:`."""
    tree = event.module.tree
    if tree is None or not isinstance(event.node, ast.Call) or not isinstance(event.node.func, ast.Attribute):
        return False
    name = ast.unparse(event.node.func.value)
    assigned = [one for one in ast.walk(tree) if isinstance(one, ast.Assign)]
    made = [one.value for one in assigned if name in map(ast.unparse, one.targets)]
    lines = {loop.place[1] for loop in event.loops if loop.place[0] == event.module.path}
    # A range around the loop over batches counts epochs.
    inner = event.loops[-1].place[1] if event.loops else 0
    ends = {
        text
        for one in ast.walk(tree)
        if isinstance(one, ast.For | ast.While) and one.lineno in lines
        for text in _ends_of(one, is_inner=one.lineno == inner)
    }
    counted = _made_of_lengths(assigned)
    return bool(_lengths_of(made, tree) & ends - counted)


def _lengths_of(made: Sequence[ast.expr], tree: ast.Module) -> set[str]:
    """The numbers that schedules are made of, and those that the factors divide by which they call at each step: a
    name, or one less another."""
    given = [
        _bare(arg)
        for call in made
        if isinstance(call, ast.Call)
        for arg in [*call.args, *(word.value for word in call.keywords if word.arg not in _EPOCHS)]
    ]
    names = {one.id for one in given if isinstance(one, ast.Name)}
    for factor in [*given, *ast.walk(tree)]:
        if (isinstance(factor, ast.Lambda) and factor in given) or getattr(factor, "name", "") in names:
            divisions = (one for one in ast.walk(factor) if isinstance(one, ast.BinOp))
            divisors = [one.right for one in divisions if isinstance(one.op, ast.Div)]
            given += divisors
            given += [
                one.left for one in divisors if isinstance(one, ast.BinOp) and isinstance(one.op, ast.Sub)
            ]
    return {ast.unparse(one) for one in given if isinstance(one, ast.Name | ast.Attribute | ast.Subscript)}


def _made_of_lengths(assigned: Sequence[ast.Assign]) -> set[str]:
    """The names of what is computed from lengths, as the batches of all processes are before `prepare`."""
    found, before = set[str](), -1
    while len(found) > before:
        before = len(found)
        for one in assigned:
            if any(
                _is_call_of(part, "len")
                or (isinstance(part, ast.Name | ast.Attribute) and ast.unparse(part) in found)
                for part in ast.walk(one.value)
            ):
                found |= {ast.unparse(target) for target in one.targets}
    return found


def _bare(number: ast.expr) -> ast.expr:
    """A number without the call that makes it one: `int(args.steps)`."""
    converts = isinstance(number, ast.Call) and getattr(number.func, "id", "") in ("int", "round")
    return number.args[0] if isinstance(number, ast.Call) and converts and number.args else number


def _ends_of(loop: ast.For | ast.While, *, is_inner: bool) -> Iterator[str]:
    """The numbers of steps by which a loop ends; `is_inner`: a step is taken in each of its rounds."""
    tests = [
        one.test
        for one in ast.walk(loop)
        if isinstance(one, ast.If) and isinstance(one.body[-1], ast.Break | ast.Return)
    ]
    for test in [loop.test, *tests] if isinstance(loop, ast.While) else tests:
        yield from (
            ast.unparse(_bare(part))
            for one in ast.walk(test)
            if isinstance(one, ast.Compare)
            for part in (one.left, *one.comparators)
        )
    if isinstance(loop, ast.For) and is_inner:
        for call in ast.walk(loop.iter):
            if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "range":
                yield from map(ast.unparse, call.args[-1:] if len(call.args) < 3 else call.args[1:2])
