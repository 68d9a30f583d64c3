"""Which expressions are sure to be one number: a loss that backward is called on, and what a criterion gives."""

from __future__ import annotations

import ast

from accelify.analysis import knowledge as k
from accelify.analysis import values as v
from accelify.analysis.kept import class_of
from accelify.analysis.script import Backward, ScriptModel
from accelify.analysis.syntax import dotted
from accelify.analysis.torch_calls import reduction_of

_FARTHEST = 6


class ScalarLosses:
    """Answers for one script whether an expression is a tensor of one number.

    A backward without a gradient of its own runs on such a tensor only; what it is called on is one wherever its name
    is read, in its function or, for an attribute, in its class.
    """

    def __init__(self, script: ScriptModel) -> None:
        self.script = script
        self._trained = {
            place for b in script.backwards if _is_alone(b) and (place := self._place(b.loss)) is not None
        }

    def has(self, node: ast.expr, depth: int = 0) -> bool:
        """Whether an expression is a tensor of one number, or a plain number."""
        if depth > _FARTHEST:
            return False
        if isinstance(node, ast.Constant):
            return isinstance(node.value, (int, float))
        if isinstance(node, ast.BinOp):
            return self.has(node.left, depth + 1) and self.has(node.right, depth + 1)
        if isinstance(node, ast.Call):
            return self._is_reduced(node)
        if isinstance(node, (ast.Name, ast.Attribute)) and self._place(node) in self._trained:
            return True
        if not isinstance(node, ast.Name):
            return False
        scope = self.script.scope_of(node)
        owner = scope.resolve(node.id)
        made = [s for s in self.script.tree.assigns(node.id) if self.script.scope_of(s) is owner]
        stores = [n for n in self.script.tree.writes(node.id) if self.script.scope_of(n) is owner]
        return bool(made) and len(made) == len(stores) and all(self.has(s.value, depth + 1) for s in made)

    def _place(self, node: ast.expr) -> tuple[object, str] | None:
        """A name with its scope, an attribute of `self` with its class."""
        text, scope = dotted(node), self.script.scope_of(node)
        if text is None:
            return None
        if isinstance(node, ast.Name):
            return scope.resolve(node.id), text
        return class_of(scope) or scope, text

    def _is_reduced(self, call: ast.Call) -> bool:
        """A criterion, a functional loss, a sum or a mean over all there is."""
        if reduction_of(call) == "none":
            return False
        criteria = self.script.things(call.func, v.CRITERION)
        if criteria:
            sites = [c.site for c in criteria if c.cls is None and k.is_loss_class(c.qualname or "")]
            return len(sites) == len(criteria) and all(
                isinstance(site, ast.Call) and reduction_of(site) != "none" for site in sites
            )
        name = self.script.qualname(call.func) or ""
        if k.is_loss_function(name):
            return True
        if name in ("torch.mean", "torch.sum"):
            return len(call.args) == 1 and not call.keywords
        own = isinstance(call.func, ast.Attribute) and call.func.attr in ("mean", "sum")
        return own and not name and not call.args and not call.keywords


def _is_alone(backward: Backward) -> bool:
    """Whether the backward is called without a gradient to begin with."""
    call = backward.call
    return (
        isinstance(call.func, ast.Attribute)
        and call.func.value is backward.loss
        and not call.args
        and all(kw.arg in ("retain_graph", "create_graph", "retain_variables") for kw in call.keywords)
    )
