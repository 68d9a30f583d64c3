"""Gradients that a script asks of a model for its input, such as a saliency map, and those of the weights that come of
it, which it sets to zero before it trains."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from accelify.heap.run import Event

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def is_for_input(event: Event, events: Sequence[Event]) -> bool:
    """Whether a call of a model without its wrapper, or a backward of that, is for the gradients of its input alone:
    no process waits for another one there, and nothing is trained with what it leaves in the weights.

    Args:
        event: the call or the backward.
        events: all of the script.
    """
    tree = event.module.tree if "requires_grad" in event.module.text else None
    around = [
        one
        for one in (ast.walk(tree) if tree is not None else ())
        if isinstance(one, _FUNCTIONS) and one.lineno <= event.line <= (one.end_lineno or one.lineno)
    ]
    if not around or not set(_of_inputs(around[-1])):
        return False
    first, last = around[-1].lineno, around[-1].end_lineno or around[-1].lineno
    calls = [
        other
        for other in events
        if other.kind == "forward" and other.module is event.module and first <= other.line <= last
    ]
    return bool(calls) and all(other.detail for other in calls) and _is_set_to_zero(event, events)


def _of_inputs(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    """What a function asks gradients for, and takes those of."""
    asked, taken = set[str](), set[str]()
    for one in ast.walk(function):
        if isinstance(one, ast.Assign) and isinstance(one.value, ast.Call | ast.Constant):
            target, value = one.targets[0], one.value
            if isinstance(target, ast.Attribute) and target.attr == "requires_grad":
                asked |= {ast.unparse(target.value)} if getattr(value, "value", False) is True else set()
            elif isinstance(value, ast.Call) and getattr(value.func, "attr", "") == "requires_grad_":
                asked.add(ast.unparse(target))
        if (
            isinstance(one, ast.Call)
            and isinstance(one.func, ast.Attribute)
            and one.func.attr == "requires_grad_"
        ):
            asked.add(ast.unparse(one.func.value))
        if isinstance(one, ast.Attribute) and one.attr == "grad" and isinstance(one.ctx, ast.Load):
            taken.add(ast.unparse(one.value))
    yield from asked & taken


def _is_set_to_zero(event: Event, events: Sequence[Event]) -> bool:
    """Whether the gradients are set to zero between an event and the backward of the training that follows it."""
    trees = {one.module.path: one.module.tree for one in events}
    for other in events:
        if other.kind != "backward" or other.loops != event.loops[: len(other.loops)]:
            continue
        # Where the ways from the script to the two part, they are in one function.
        ways = zip(_from_outside(event), _from_outside(other), strict=False)
        (path, line), (_, end) = next((pair for pair in ways if pair[0] != pair[1]), (("", 0), ("", 0)))
        tree = trees.get(path)
        if any(
            line < one.lineno < end
            for one in (ast.walk(tree) if tree is not None else ())
            if isinstance(one, ast.Call) and getattr(one.func, "attr", "") == "zero_grad"
        ):
            return True
    return False


def _from_outside(event: Event) -> list[tuple[str, int]]:
    return [*reversed(event.via), (event.module.path, event.line)]
