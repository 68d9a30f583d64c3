"""Numbers that a script computes of the gradient of an input, and weighs a loss by: a balance of tasks, for example.

loss.backward()
grads[task] = shared.grad.clone()       # of this process's samples alone
weight = float(balance(grads)[0])
(weight * loss).backward()              # another weight on each process
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from accelify.analysis.losses.input_gradients import InputGradients
from accelify.analysis.scopes import Scope
from accelify.analysis.script import Backward, ScriptModel
from accelify.analysis.syntax import Node, dotted, names_in, walk

_NUMBERS = frozenset({"float", "int"})
_PUTTING = frozenset({"append", "extend", "update", "add", "insert"})
_ROUNDS = 4


class GradientNumber(NamedTuple):
    """A name that holds such numbers, the input whose gradient they are computed from, and where that is read."""

    name: str
    given: str
    read: ast.Attribute


def gradient_numbers(
    script: ScriptModel, gradients: InputGradients, backward: Backward
) -> Iterator[GradientNumber]:
    """The numbers that are computed from what a backward leaves in its inputs, and that weigh a loss beside it."""
    scope = backward.scope
    for given in gradients.inputs(backward):
        reads = [n for n in scope.of_type(ast.Attribute) if dotted(n) == f"{given}.grad"]
        numbers = _made_of(scope, given)
        weighing = _weighing(script, scope) & numbers if numbers else set()
        if reads and weighing:
            yield GradientNumber(min(weighing), given, script.tree.first(reads))


def _made_of(scope: Scope, given: str) -> set[str]:
    """The names of a function that take numbers computed from a gradient, as `float(x)` and `x.item()` give them."""
    known, numbers = set[str](), set[str]()
    for _ in range(_ROUNDS):
        before = len(known)
        for node in scope.nodes:
            targets: list[ast.expr] = []
            value: list[ast.expr] = []
            if isinstance(node, ast.Assign):
                targets, value = node.targets, [node.value]
            elif (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in _PUTTING
            ):
                targets, value = [node.func.value], node.args
            if not any(_reads(part, given, known) for part in value):
                continue
            roots = {root for target in targets for root in _roots(target)}
            known |= roots
            carried = {name for part in value for name in names_in(part)} & known - roots
            if any(_is_number(part) for part in value) or (carried and carried <= numbers):
                numbers |= roots
        if len(known) == before:
            break
    return numbers


def _reads(value: ast.expr, given: str, known: set[str]) -> bool:
    return bool(names_in(value) & known) or any(
        isinstance(n, ast.Attribute) and dotted(n) == f"{given}.grad" for n in walk(value)
    )


def _is_number(value: ast.expr) -> bool:
    if not isinstance(value, ast.Call):
        return False
    return dotted(value.func) in _NUMBERS or (
        isinstance(value.func, ast.Attribute) and value.func.attr == "item"
    )


def _roots(target: Node) -> Iterator[str]:
    """The names of `scale[task]`, of `a, b`."""
    if isinstance(target, (ast.Tuple, ast.List)):
        for part in target.elts:
            yield from _roots(part)
    while isinstance(target, (ast.Subscript, ast.Starred)):
        target = target.value
    if isinstance(target, ast.Name):
        yield target.id


def _weighing(script: ScriptModel, scope: Scope) -> set[str]:
    """What scales the losses of a function, or parts of them."""
    found: set[str] = set()
    losses = [b.loss for b in script.backwards if b.scope is scope]
    names = {name for loss in losses for name in names_in(loss)}
    made = [n.value for n in scope.of_type(ast.Assign) if names & set(_roots(n.targets[0]))]
    for node in (inner for one in [*losses, *made] for inner in walk(one)):
        if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Mult, ast.Div)):
            found |= {*_roots(node.left), *_roots(node.right)}
    return found


__all__ = ["GradientNumber", "gradient_numbers"]
