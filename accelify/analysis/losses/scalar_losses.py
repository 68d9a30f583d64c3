"""Which expressions are sure to be one number: what backward is called on, its summands, what a criterion gives."""

from __future__ import annotations

import ast

from accelify.analysis import knowledge as k
from accelify.analysis.interpretation.torch_calls import reduction_of
from accelify.analysis.losses.elementwise import operands
from accelify.analysis.scopes import Scope
from accelify.analysis.script import Backward, ScriptModel
from accelify.analysis.statements.reaching_assignments import last_assignment, reaching_assignments
from accelify.analysis.syntax import dotted
from accelify.analysis.values import CRITERION, Entity

_DEEPEST = 8
# What makes one number of a tensor where it gets no dimension.
_REDUCING = frozenset("mean sum max min prod std var median norm trace".split())
_Place = tuple[Scope | ast.ClassDef | None, str]


class ScalarLosses:
    """Answers for one script whether an expression is a tensor of one number.

    A backward without an explicit gradient runs on such a tensor only; what it is called on is one wherever its name
    is read, in its function or, for an attribute, in its class. So are the summands of it.
    """

    def __init__(self, script: ScriptModel) -> None:
        self.script = script
        self._trained: set[_Place] = set()
        self._active: set[_Place] = set()
        queue = [backward.loss for backward in script.every_backward if _is_alone(backward)]
        for node in queue:  # which grows
            place = self._place(node)
            if place is None:
                queue += self._operands(node) or []
            elif place not in self._trained:
                self._trained.add(place)
                queue += self._made(node)

    def of_models(self) -> set[tuple[Entity, int | None]]:
        """The models of which a call gives such a tensor, with its place where it is one of several that they give."""
        found: set[tuple[Entity, int | None]] = set()
        queue = [(backward.loss, _DEEPEST) for backward in self.script.every_backward if _is_alone(backward)]
        for node, left in queue:  # which grows
            if isinstance(node, ast.Call):
                found.update((model, None) for model in self.script.models_run(node))
            if isinstance(node, ast.Name) and left:
                made = last_assignment(self.script.tree, node)
                value = made.value if made is not None else None
                target = made.targets[0] if made is not None and len(made.targets) == 1 else None
                if isinstance(target, ast.Name) and value is not None:
                    queue.append((value, left - 1))
                elif isinstance(target, ast.Tuple) and isinstance(value, ast.Call):
                    number = next((n for n, one in enumerate(target.elts) if dotted(one) == node.id), None)
                    found.update((model, number) for model in self.script.models_run(value))
            else:
                queue += [(part, left) for part in self._operands(node) or ()]
        return found

    def has(self, node: ast.expr, far: int = 0) -> bool:
        """Whether an expression of the script is a tensor of one number, or a plain number."""
        place = self._place(node)
        if place is not None:
            # `loss = loss.mean()` comes after the code that reads the losses of all samples.
            made = self._made(node)
            if place in self._trained or far > _DEEPEST:
                return far <= _DEEPEST and not any(map(_keeps_dimensions, made))
            if place in self._active:
                return True  # `total = total + loss` is one number where all else is that it is made of
            values = self._bound(node) if isinstance(node, ast.Name) else []
            self._active.add(place)
            answer = bool(values) and all(self.has(value, far + 1) for value in values)
            self._active.discard(place)
            return answer
        if isinstance(node, ast.Constant):
            return isinstance(node.value, (int, float))
        if isinstance(node, ast.Call) and self._reduces(node):
            return True
        parts = self._operands(node)
        return bool(parts) and all(self.has(part, far) for part in parts or ())

    def has_many(self, node: ast.expr) -> bool:
        """Whether an expression of the script is seen to hold several numbers: one of each sample or class."""
        made = self._made(node) if self._place(node) is not None else []
        return bool(made) and all(map(_keeps_dimensions, made))

    def _place(self, node: ast.expr) -> _Place | None:
        """The scope and name of a variable, or the class and name of an attribute of its objects."""
        scope, text = self.script.scope_of(node), dotted(node)
        if isinstance(node, ast.Name):
            return scope.resolve(node.id), node.id
        own = scope.self_name()
        if text is None or own is None or not text.startswith(f"{own}."):
            return None
        return scope.owner_class, text

    def _made(self, node: ast.expr) -> list[ast.expr]:
        """What is assigned to a variable or attribute, as a whole."""
        stmts = self.script.tree.assigns(dotted(node) or "")
        place = self._place(node)
        return [
            stmt.value
            for stmt in stmts
            if any(dotted(t) == dotted(node) and self._place(t) == place for t in stmt.targets)
        ]

    def _bound(self, name: ast.Name) -> list[ast.expr]:
        """What a variable is assigned where it is read, or all that it adds up; nothing where that is not known."""
        reaching = reaching_assignments(self.script, name)
        if reaching is not None:
            return [stmt.value for stmt in reaching]
        scope, tree = self.script.scope_of(name), self.script.tree
        stmts = [tree.parent(store) for store in tree.writes(name.id) if self.script.scope_of(store) is scope]
        added = [stmt.value for stmt in stmts if isinstance(stmt, ast.Assign | ast.AugAssign)]
        return added if len(added) == len(stmts) and not scope.takes(name.id) else []

    def _operands(self, node: ast.expr) -> list[ast.expr] | None:
        name = self.script.qualname(node.func) if isinstance(node, ast.Call) else None
        return operands(node, name or "")

    def _reduces(self, call: ast.Call) -> bool:
        """A criterion, a functional loss, or a sum or mean over all there is."""
        if reduction_of(call) == "none":
            return False
        criteria = self.script.entities(call.func, CRITERION)
        if criteria:
            sites = [one.site for one in criteria if one.cls is None and k.is_loss_class(one.qualname or "")]
            return len(sites) == len(criteria) and all(
                isinstance(site, ast.Call) and reduction_of(site) != "none" for site in sites
            )
        if k.is_loss_function(self.script.qualname(call.func) or ""):
            return True
        func = call.func
        return isinstance(func, ast.Attribute) and func.attr in _REDUCING and not (call.args or call.keywords)


def _keeps_dimensions(node: ast.expr) -> bool:
    """`x.mean(1)`, `F.mse_loss(x, y, reduction="none")`, `output.max(1)[0]`, `output == target`."""
    if isinstance(node, (ast.Subscript, ast.Compare)):
        return True
    if not isinstance(node, ast.Call):
        return False
    if isinstance(node.func, ast.Attribute) and node.func.attr in _REDUCING and node.args:
        return True
    return reduction_of(node) == "none" or any(kw.arg in ("dim", "axis") for kw in node.keywords)


def _is_alone(backward: Backward) -> bool:
    """Whether the backward is called without a gradient to begin with."""
    call = backward.call
    return (
        isinstance(call.func, ast.Attribute)
        and call.func.value is backward.loss
        and not call.args
        and all(kw.arg in ("retain_graph", "create_graph", "retain_variables") for kw in call.keywords)
    )
