"""Which expressions are sure to be one number: a loss that backward is called on, its parts, what a criterion gives."""

from __future__ import annotations

import ast

from accelify.analysis import knowledge as k
from accelify.analysis import values as v
from accelify.analysis.interpretation.torch_calls import reduction_of
from accelify.analysis.losses.elementwise import operands
from accelify.analysis.losses.summands import Summands
from accelify.analysis.program import Module
from accelify.analysis.script import Backward, ScriptModel
from accelify.analysis.statements.assigned_values import ELEMENT, PART, Gift, Given
from accelify.analysis.statements.branches import constants_of, returned
from accelify.analysis.statements.plain_numbers import PlainNumbers
from accelify.analysis.syntax import call_keyword
from accelify.analysis.values import Entity

_FARTHEST = 30
# What makes one number of a tensor where it gets no dimension.
_REDUCING = frozenset("mean sum max min prod std var median norm trace".split())


class ScalarLosses:
    """Answers for one script whether an expression is a tensor of one number.

    A backward without an explicit gradient runs on such a tensor only; what it is called on is one wherever its name
    is read, in its function or, for an attribute, in its class. So are the summands of it.
    """

    def __init__(self, script: ScriptModel) -> None:
        self.script = script
        self.given = Given(script)
        self.numbers = PlainNumbers(self.given)
        summands = Summands(self.given)
        for backward in script.backwards:
            if _is_alone(backward):
                summands.follow(backward.loss, script.module_of(backward.loss))
        self._trained = summands.places
        self._active: set[ast.expr] = set()
        self._known: dict[ast.expr, bool] = {}

    def has(self, node: ast.expr) -> bool:
        """Whether an expression of the script is a tensor of one number, or a plain number."""
        return self._is_one(node, self.script.module_of(node))

    def _is_one(self, node: ast.expr, module: Module) -> bool:
        if len(self._active) > _FARTHEST or node in self._active:
            return False
        if node not in self._known:
            self._active.add(node)
            self._known[node] = self._look(node, module)
            self._active.discard(node)
        return self._known[node]

    def _look(self, node: ast.expr, module: Module) -> bool:
        if isinstance(node, (ast.Name, ast.Attribute)) and self.given.place(node, module) in self._trained:
            # `loss = loss.mean()` comes after the code that reads the losses of all samples.
            return not (isinstance(node, ast.Name) and self._holds_many(node, module))
        if self.numbers.has(node, module):
            return True
        parts = operands(node, self._called(node, module))
        if parts is not None:
            return all(self._is_one(part, module) for part in parts)
        if isinstance(node, ast.Call):
            return self._call(node, module)
        return isinstance(node, (ast.Name, ast.Attribute)) and self._variable(node, module)

    def _called(self, node: ast.expr, module: Module) -> str:
        return self.given.imported_name(node.func, module) if isinstance(node, ast.Call) else ""

    def has_many(self, node: ast.expr) -> bool:
        """Whether an expression of the script is seen to hold several numbers: one of each sample or class."""
        return self._holds_many(node, self.script.module_of(node))

    def _holds_many(self, node: ast.expr, module: Module) -> bool:
        gifts = self.given.given(node, module) if isinstance(node, (ast.Name, ast.Attribute)) else None
        return bool(gifts) and all(_keeps_dimensions(gift.value) for gift in gifts or ())

    # -- names and attributes

    def _variable(self, node: ast.Name | ast.Attribute, module: Module) -> bool:
        place, gifts = self.given.place(node, module), self.given.given(node, module)
        if place is None or not gifts or self.given.is_parameter(place):
            return False
        return all(self._gift(gift) for gift in gifts)

    def _gift(self, gift: Gift) -> bool:
        if gift.how == ELEMENT:
            return False
        if gift.how == PART:
            return self._part(gift.value, gift.index, gift.module)
        return self._is_one(gift.value, gift.module)

    # -- calls

    def _call(self, call: ast.Call, module: Module) -> bool:
        """A criterion, a functional loss, a sum or a mean over all there is, or a function that gives such a one."""
        if _may_keep_all(call):
            return False
        criteria = [
            w
            for w in self.given.values(call.func, module)
            if isinstance(w, Entity) and w.kind == v.CRITERION and w.cls is None
        ]
        if criteria:
            return all(_is_reducing_criterion(c) for c in criteria)
        name = self._called(call, module)
        if k.is_loss_function(name):
            return True
        if name:
            head, _, last = name.rpartition(".")
            alone = len(call.args) == 1 and not call.keywords
            return head == "torch" and (last == "dot" or (last in _REDUCING and alone))
        func = call.func
        callees = self.script.callees(call)
        if callees:
            return self._given_back(call, None)
        if not isinstance(func, ast.Attribute) or func.attr not in _REDUCING:
            return False
        return not call.args and not call.keywords

    def _given_back(self, call: ast.Call, index: int | None) -> bool:
        """Whether everything that a call's functions return is one number, at an index of it where there is one."""
        found = False
        for callee in self.script.callees(call):
            if any(isinstance(n, (ast.Yield, ast.YieldFrom)) for n in callee.nodes):
                return False
            module = self.script.interpreter.module_of(callee)
            for value in returned(callee.node.body, constants_of(callee, call)):
                found = True
                one = self._is_one(value, module) if index is None else self._part(value, index, module)
                if not one:
                    return False
        return found

    def _part(self, node: ast.expr, index: int, module: Module) -> bool:
        """Whether what is at an index of a tuple is one number."""
        if isinstance(node, (ast.Tuple, ast.List)):
            return index < len(node.elts) and self._is_one(node.elts[index], module)
        return isinstance(node, ast.Call) and self._given_back(node, index)


def _keeps_dimensions(node: ast.expr) -> bool:
    """`x.mean(1)`, `F.mse_loss(x, y, reduction="none")`, `output.max(1)[0]`, `output == target`."""
    if isinstance(node, (ast.Subscript, ast.Compare)):
        return True
    if not isinstance(node, ast.Call):
        return False
    if isinstance(node.func, ast.Attribute) and node.func.attr in _REDUCING and node.args:
        return True
    return _may_keep_all(node) or any(kw.arg in ("dim", "axis") for kw in node.keywords)


def _may_keep_all(call: ast.Call) -> bool:
    """Whether an argument of a loss's call makes it, or may make it, return the losses of all samples."""
    if reduction_of(call) == "none":
        return True
    stated = [call_keyword(call, "reduction"), call_keyword(call, "reduce")]
    return any(one is not None and not isinstance(one, ast.Constant) for one in stated)


def _is_reducing_criterion(criterion: Entity) -> bool:
    site = criterion.site
    return (
        isinstance(site, ast.Call) and k.is_loss_class(criterion.qualname or "") and not _may_keep_all(site)
    )


def _is_alone(backward: Backward) -> bool:
    """Whether the backward is called without a gradient to begin with."""
    call = backward.call
    return (
        isinstance(call.func, ast.Attribute)
        and call.func.value is backward.loss
        and not call.args
        and all(kw.arg in ("retain_graph", "create_graph", "retain_variables") for kw in call.keywords)
    )
