"""Weights that a second-order step shifts by gradients which are local to one process, and shifts back.

vector = torch.autograd.grad(loss, other.parameters())    (or `v.grad` of a model that is not prepared)
for p, v in zip(model.parameters(), vector):
    p.data.add_(rate * v)

What is computed at the shifted weights is averaged too late: each process has been at other ones.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Set

from accelify.analysis.scopes import Scope, handed_to
from accelify.analysis.script import ScriptModel
from accelify.analysis.statements.assignments import assigned_once
from accelify.analysis.syntax import calls_in, dotted, names_in, target_names, text_of, walk
from accelify.analysis.values import Entity

_SHIFTING = frozenset({"add_", "sub_"})
_WEIGHTS = frozenset({"parameters", "named_parameters"})
_DEEPEST = 4


def shifted_weights(script: ScriptModel, prepared: Set[Entity]) -> Iterator[tuple[ast.stmt, str]]:
    """The first statement of each function that shifts weights of a prepared model so, with what it shifts them by."""
    stated: set[Scope] = set()
    for loop in script.tree.nodes(ast.For):
        scope = script.scope_of(loop)
        if scope in stated or not any(script.models_of(model) & prepared for model in _models_of(loop.iter)):
            continue
        for stmt in loop.body:
            amount = _shift(stmt, set(target_names(loop.target)))
            if amount is None:
                continue
            names = names_in(amount)
            own = [
                given
                for name, given in _pairs(loop)
                if name in names and _is_own(script, prepared, given, scope)
            ]
            if own:
                stated.add(scope)
                yield stmt, text_of(amount)
                break


def _models_of(node: ast.expr) -> Iterator[ast.expr]:
    """The model whose weights are read: `model` of `zip(model.parameters(), vector)`."""
    for call in walk(node):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in _WEIGHTS:
            yield call.func.value


def _shift(stmt: ast.stmt, names: set[str]) -> ast.expr | None:
    """By what a statement shifts one of some weights: `p.data.add_(rate * v)`, `p.data -= rate * v`."""
    if isinstance(stmt, ast.AugAssign) and isinstance(stmt.op, (ast.Add, ast.Sub)):
        return stmt.value if _is_weight(stmt.target, names) else None
    call = stmt.value if isinstance(stmt, ast.Expr) else None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or not call.args:
        return None
    shifts = call.func.attr in _SHIFTING and _is_weight(call.func.value, names)
    return call.args[-1] if shifts else None


def _is_weight(node: ast.expr, names: set[str]) -> bool:
    node = node.value if isinstance(node, ast.Attribute) and node.attr == "data" else node
    return isinstance(node, ast.Name) and node.id in names


def _pairs(loop: ast.For) -> Iterator[tuple[str, ast.expr]]:
    """The names of a loop with what each iterates over."""
    if isinstance(loop.target, ast.Tuple) and isinstance(loop.iter, ast.Call):
        if dotted(loop.iter.func) == "zip":
            for target, given in zip(loop.target.elts, loop.iter.args, strict=False):
                for name in target_names(target):
                    yield name, given


def _is_own(script: ScriptModel, prepared: Set[Entity], node: ast.expr, scope: Scope, far: int = 0) -> bool:
    """Whether gradients are what one process has made of its share of a batch."""
    if far > _DEEPEST:
        return False
    if isinstance(node, ast.Name):
        if scope.takes(node.id):
            return any(
                _is_own(script, prepared, given, script.scope_of(call), far + 1)
                for call in script.callers(scope)
                for given, name in handed_to(call, scope)
                if name == node.id
            )
        made = assigned_once(scope, node)
        return made is not None and _is_own(script, prepared, made, scope, far + 1)
    calls = calls_in(node)
    if any((dotted(call.func) or "").endswith(("reduce", "gather")) for call in calls):
        return False
    if any(script.qualname(call.func) == "torch.autograd.grad" for call in calls):
        return True
    if any(isinstance(n, ast.Attribute) and n.attr == "grad" for n in walk(node)):
        models = [script.models_of(model) for model in _models_of(node)]
        return bool(models) and all(contained and not contained & prepared for contained in models)
    return False


__all__ = ["shifted_weights"]
