"""Sums over the samples of a batch that are in its last dimension: the channels were brought to the front before.

def flatten(x):                                              a row for each channel, of all its pixels in all images
    return x.permute(1, 0, 2, 3).reshape(x.size(1), -1)
dice = (flatten(p) * flatten(y)).sum(-1)
"""

from __future__ import annotations

import ast

from accelify.analysis.models.alternatives import run_by
from accelify.analysis.scopes import Scope
from accelify.analysis.script import ScriptModel
from accelify.analysis.statements.branches import returned
from accelify.analysis.syntax import is_constant, is_minus_one

_DEEPEST = 6
_RESHAPING = frozenset({"reshape", "view"})
# After these an element has the same position as before.
_PASSING = frozenset("abs clamp clone contiguous double float pow square to".split())


class MovedSamples:
    """Answers which sums go over samples that are next to the pixels of each channel.

    Args:
        script: its model.
    """

    def __init__(self, script: ScriptModel) -> None:
        self.script = script

    def sums(self, call: ast.Call, scope: Scope) -> bool:
        """Whether `x.sum(-1)` or `torch.sum(x, dim=1)` is taken of rows of channels."""
        summed, dims = _summed(call)
        if summed is None or len(dims) != 1:
            return False
        last = is_constant(dims[0], 1) or is_minus_one(dims[0])
        return last and self._has_rows_of_channels(summed, scope, 0)

    def _has_rows_of_channels(self, node: ast.expr, scope: Scope, far: int) -> bool:
        if far > _DEEPEST:
            return False
        if isinstance(node, ast.Name):
            made = _made(node, scope)
            return bool(made) and any(self._has_rows_of_channels(one, scope, far + 1) for one in made)
        if isinstance(node, ast.BinOp):
            return any(self._has_rows_of_channels(one, scope, far + 1) for one in (node.left, node.right))
        if not isinstance(node, ast.Call):
            return False
        if isinstance(node.func, ast.Attribute):
            if node.func.attr in _RESHAPING and len(node.args) == 2 and is_minus_one(node.args[1]):
                return _begins_with_channels(node.func.value, scope, 0)
            if node.func.attr in _PASSING:
                return self._has_rows_of_channels(node.func.value, scope, far + 1)
        module = self.script.interpreter.module_of(scope)
        for value in self.script.interpreter.evaluate(module, scope, node.func):
            for function, _ in run_by(value):
                inner = function.scope
                results = returned(inner.node.body, {})
                if any(self._has_rows_of_channels(one, inner, far + 1) for one in results):
                    return True
        return False


def _begins_with_channels(node: ast.expr, scope: Scope, far: int) -> bool:
    """Whether the second dimension was put first: `x.permute(1, 0, 2, 3).contiguous()`."""
    if far > _DEEPEST:
        return False
    if isinstance(node, ast.Name):
        made = _made(node, scope)
        return bool(made) and all(_begins_with_channels(one, scope, far + 1) for one in made)
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    if node.func.attr == "contiguous":
        return _begins_with_channels(node.func.value, scope, far + 1)
    return node.func.attr == "permute" and bool(node.args) and _first_is_one(node.args[0], scope)


def _first_is_one(order: ast.expr, scope: Scope) -> bool:
    """`1`, `(1, 0, 2)`, `(1, 0) + tuple(range(2, x.dim()))`, or a name of such an order."""
    if isinstance(order, ast.Name):
        made = _made(order, scope)
        return len(made) == 1 and not isinstance(made[0], ast.Name) and _first_is_one(made[0], scope)
    if isinstance(order, ast.BinOp) and isinstance(order.op, ast.Add):
        return _first_is_one(order.left, scope)
    if isinstance(order, (ast.Tuple, ast.List)):
        return bool(order.elts) and is_constant(order.elts[0], 1)
    return is_constant(order, 1)


def _made(name: ast.Name, scope: Scope) -> list[ast.expr]:
    """What a function assigns to one of its local names."""
    if scope.resolve(name.id) is not scope:
        return []
    return [
        stmt.value
        for stmt in scope.of_type(ast.Assign)
        if any(isinstance(t, ast.Name) and t.id == name.id for t in stmt.targets)
    ]


def _summed(call: ast.Call) -> tuple[ast.expr | None, list[ast.expr]]:
    """What a sum is taken of, and its dimensions."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr != "sum":
        return None, []
    dims = [kw.value for kw in call.keywords if kw.arg in ("dim", "axis")]
    if isinstance(call.func.value, ast.Name) and call.func.value.id == "torch":
        return (call.args[0] if call.args else None), [*call.args[1:], *dims]
    return call.func.value, [*call.args, *dims]


__all__ = ["MovedSamples"]
