"""Losses that bend a mean over the batch: `(1 - torch.exp(-mean)) ** 2 * mean`, `torch.sqrt(F.mse_loss(a, b))`.

The mean over the processes of what is made of each one's mean is not what is made of the mean of the whole batch.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from accelify.analysis import knowledge as k
from accelify.analysis import values as v
from accelify.analysis.interpretation.torch_calls import reduction_of
from accelify.analysis.models.alternatives import run_by
from accelify.analysis.program import Module
from accelify.analysis.scopes import Scope
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import dotted, is_constant
from accelify.analysis.values import Imported, Thing

_CURVES = frozenset("exp log log1p log10 pow reciprocal rsqrt sigmoid sqrt square tanh".split())
_PASSING = frozenset("contiguous double float mean reshape squeeze sum to unsqueeze view".split())
_DEEPEST = 6


class CurvedMeans:
    """Follows a loss to the curves in it that are taken of a mean over the batch.

    Args:
        script: its model.
        of_batch: whether an expression of a scope is made of the batch at hand.
    """

    def __init__(self, script: ScriptModel, of_batch: Callable[[ast.expr, Scope], bool]) -> None:
        self.script, self.of_batch = script, of_batch

    def found(self, loss: ast.expr, scope: Scope) -> Iterator[tuple[ast.expr, Scope]]:
        """The curves in a loss, each with its scope."""
        queue, seen = [(loss, scope, 0)], set[ast.AST]()
        for node, place, far in queue:  # which grows
            if node in seen or far > _DEEPEST:
                continue
            seen.add(node)
            bent = self._bent(node, place)
            if bent is not None:
                if self._is_mean(bent, place):
                    yield node, place
                else:
                    queue.append((bent, place, far))
            elif isinstance(node, ast.BinOp):
                queue += [(node.left, place, far), (node.right, place, far)]
            elif isinstance(node, ast.UnaryOp):
                queue.append((node.operand, place, far))
            elif isinstance(node, ast.Name):
                queue += [(value, place, far + 1) for value in self._given(node, place)]
            elif isinstance(node, ast.Call):
                returned = list(self._returned(node, place))
                queue += [(value, inner, far + 1) for value, inner in returned]
                last = _last(node)
                if not returned and last in _PASSING:
                    given = [node.func.value] if isinstance(node.func, ast.Attribute) else []
                    queue += [(one, place, far) for one in [*given, *node.args[:1]]]

    def _bent(self, node: ast.expr, scope: Scope) -> ast.expr | None:
        """What a curve is taken of: `x` in `x.exp()`, `torch.exp(x)` and `x ** 2`."""
        if isinstance(node, ast.BinOp):
            return node.left if isinstance(node.op, ast.Pow) and not is_constant(node.right, 1) else None
        if not isinstance(node, ast.Call) or _last(node) not in _CURVES:
            return None
        names = [w.name for w in self._held(node.func, scope) if isinstance(w, Imported)]
        if names:
            return node.args[0] if node.args and names[0].startswith("torch.") else None
        return node.func.value if isinstance(node.func, ast.Attribute) else None

    def _is_mean(self, node: ast.expr, scope: Scope, far: int = 0) -> bool:
        """Whether an expression is one number, made of a mean over the batch by factors and constants alone."""
        if far > _DEEPEST:
            return False
        if isinstance(node, ast.UnaryOp):
            return self._is_mean(node.operand, scope, far + 1)
        if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub, ast.Mult, ast.Div)):
            sides = [node.left, node.right]
            means = [side for side in sides if self._is_mean(side, scope, far + 1)]
            return bool(means) and all(s in means or isinstance(s, ast.Constant) for s in sides)
        if isinstance(node, ast.Name):
            given = self._given(node, scope)
            return bool(given) and all(self._is_mean(value, scope, far + 1) for value in given)
        if isinstance(node, ast.Call):
            return self._averages(node, scope, far)
        bent = self._bent(node, scope)
        return bent is not None and self._is_mean(bent, scope, far + 1)

    def _averages(self, call: ast.Call, scope: Scope, far: int) -> bool:
        bent = self._bent(call, scope)
        if bent is not None:
            return self._is_mean(bent, scope, far + 1)
        held = self._held(call.func, scope)
        names = [w.name for w in held if isinstance(w, Imported)]
        if len(held) == len(names) == 1 and k.is_loss_function(names[0]):
            return reduction_of(call) in (None, "mean")
        if names == ["torch.mean"]:
            return len(call.args) == 1 and not call.keywords and self._is_of_batch(call.args[0], scope)
        criteria = [w for w in held if isinstance(w, Thing) and w.kind == v.CRITERION and w.cls is None]
        if len(held) == len(criteria) == 1 and isinstance(criteria[0].site, ast.Call):
            known = k.is_loss_class(criteria[0].qualname or "")
            return known and reduction_of(criteria[0].site) in (None, "mean")
        if isinstance(call.func, ast.Attribute) and call.func.attr == "mean" and not names:
            return not call.args and not call.keywords and self._is_of_batch(call.func.value, scope)
        returned = list(self._returned(call, scope))
        return bool(returned) and all(self._is_mean(value, inner, far + 1) for value, inner in returned)

    def _is_of_batch(self, node: ast.expr, scope: Scope) -> bool:
        weights = any(
            isinstance(w, Thing) and w.kind in (v.MODEL, v.PARAMETERS) for w in self._held(node, scope)
        )
        return self.of_batch(node, scope) and not weights

    def _held(self, node: ast.expr, scope: Scope) -> set[v.Value]:
        return self.script.interpreter.evaluate(self._module(scope), scope, node)

    def _module(self, scope: Scope) -> Module:
        return self.script.interpreter.module_of(scope)

    def _returned(self, call: ast.Call, scope: Scope) -> Iterator[tuple[ast.expr, Scope]]:
        """What the functions of the program give back that a call runs."""
        for value in self._held(call.func, scope):
            for function, _ in run_by(value):
                for node in function.scope.nodes:
                    if isinstance(node, ast.Return) and node.value is not None:
                        yield node.value, function.scope

    def _given(self, name: ast.Name, scope: Scope) -> list[ast.expr]:
        """What a function assigns to a name of its own, by itself."""
        if scope.resolve(name.id) is not scope or any(a.arg == name.id for a in scope.parameters()):
            return []
        writes = [
            write
            for write in self._module(scope).tree.writes(name.id)
            if self._module(scope).scopes.of(write) is scope
        ]
        stmts = [self._module(scope).tree.statement(write) for write in writes]
        plain = [
            s.value
            for s in stmts
            if isinstance(s, ast.Assign)
            and any(isinstance(t, ast.Name) and t.id == name.id for t in s.targets)
        ]
        # `loss = loss.sqrt()` is made of what the name held before.
        return plain if len(plain) == len(stmts) else []


def _last(call: ast.Call) -> str:
    return str(dotted(call.func) or getattr(call.func, "attr", "")).rpartition(".")[2]
