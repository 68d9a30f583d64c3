"""Samples that are picked by how their losses compare: each process picks among its own only.

each = F.cross_entropy(output, y, reduction="none")
loss = each.topk(k, largest=False)[0].mean()            (those of small loss, or of large one)
loss = each[np.argsort(each.data)[:k]].mean()
"""

from __future__ import annotations

import ast

from accelify.analysis import values as v
from accelify.analysis.scopes import Scope
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import call_argument, call_keyword, dotted, is_constant, text_of
from accelify.analysis.values import Imported, Thing

# By the place of the dimension among the arguments, the tensor being the first.
_RANKING = {"topk": 2, "sort": 1, "argsort": 1, "kthvalue": 2}
_LIBRARIES = frozenset({"torch", "np", "numpy"})
_STAYING = frozenset("cpu cuda to detach clone data numpy float double squeeze contiguous".split())
_SHAPING = frozenset({"view", "reshape"})
# One loss for each sample; others have one for each number, and rank those of a sample unless they are made one row.
_ROWS = frozenset("cross_entropy nll_loss CrossEntropyLoss NLLLoss".split())
_FARTHEST = 5


def ranks_losses(script: ScriptModel, scope: Scope, call: ast.Call) -> bool:
    """Whether a call puts the losses of single samples into order, over the whole batch.

    Args:
        script: its model.
        scope: the function that the call stands in.
        call: any call.
    """
    last = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    place = _RANKING.get(last)
    if place is None or not isinstance(call.func, ast.Attribute):
        return False
    apart = (dotted(call.func) or "").partition(".")[0] in _LIBRARIES
    ranked = (call.args[0] if call.args else None) if apart else call.func.value
    dimension = call_argument(call, place if apart else place - 1, "dim") or call_keyword(call, "axis")
    # Along a second dimension, each sample's own are ranked.
    if ranked is None or not (dimension is None or is_constant(dimension, 0)):
        return False
    return _holds_losses(script, scope, ranked, _FARTHEST)


def _holds_losses(script: ScriptModel, scope: Scope, node: ast.expr, far: int, *, flat: bool = False) -> bool:
    """Whether an expression is one row of losses that nothing has reduced yet; `flat` where it is made one later."""
    if far == 0:
        return False
    if isinstance(node, ast.Name):
        given = [
            s.value
            for s in scope.of_type(ast.Assign)
            if any(isinstance(t, ast.Name) and t.id == node.id for t in s.targets)
        ]
        return bool(given) and any(_holds_losses(script, scope, one, far - 1, flat=flat) for one in given)
    if isinstance(node, ast.Attribute):
        return node.attr == "data" and _holds_losses(script, scope, node.value, far, flat=flat)
    if isinstance(node, ast.BinOp):
        return any(_holds_losses(script, scope, side, far, flat=flat) for side in (node.left, node.right))
    if not isinstance(node, ast.Call):
        return False
    if isinstance(node.func, ast.Attribute):
        last = node.func.attr
        shaped = last in _SHAPING and len(node.args) == 1 and text_of(node.args[0]) == "-1"
        row = shaped or (last == "flatten" and not node.args)
        if (row or last in _STAYING) and _holds_losses(script, scope, node.func.value, far, flat=flat or row):
            return True
    return _gives_each(script, scope, node, flat=flat)


def _gives_each(script: ScriptModel, scope: Scope, call: ast.Call, *, flat: bool) -> bool:
    """Whether a call is of a loss that keeps those of the samples apart: `F.cross_entropy(x, y, reduction="none")`."""
    module = script.interpreter.module_of(scope)
    for held in script.interpreter.evaluate(module, scope, call.func):
        made = held.site if isinstance(held, Thing) and held.kind == v.CRITERION else None
        if isinstance(held, Imported) and held.name.startswith("torch.nn.functional."):
            made = call
        last = (dotted(made.func) or "").rpartition(".")[2] if isinstance(made, ast.Call) else ""
        if (
            isinstance(made, ast.Call)
            and (flat or last in _ROWS)
            and (
                is_constant(call_keyword(made, "reduction"), "none")
                or is_constant(call_keyword(made, "reduce"), False)
            )
        ):
            return True
    return False
