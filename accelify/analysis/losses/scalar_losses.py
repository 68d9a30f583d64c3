"""Which expressions are sure to be one number: a loss that backward is called on, its parts, what a criterion gives."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from accelify.analysis import knowledge as k
from accelify.analysis import values as v
from accelify.analysis.interpretation.torch_calls import reduction_of
from accelify.analysis.losses.elementwise import operands
from accelify.analysis.losses.summands import Summands
from accelify.analysis.program import Module
from accelify.analysis.scopes import handed_to
from accelify.analysis.script import Backward, ScriptModel
from accelify.analysis.statements.assigned_values import ADDED, ELEMENT, PART, Gift, Given, Place
from accelify.analysis.statements.branches import constants_of, returned
from accelify.analysis.statements.plain_numbers import PlainNumbers
from accelify.analysis.syntax import call_keyword, dotted
from accelify.analysis.values import Entity

_FARTHEST = 30
# What makes one number of a tensor where it gets no dimension.
_REDUCING = frozenset("mean sum max min prod std var median norm trace".split())
_PASSED_ON = frozenset({"list", "tuple", "reversed", "dict", "iter"})


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
        self._active: set[ast.expr | Place] = set()
        self._known: dict[ast.expr, bool] = {}
        self._assumed = False  # an answer hangs on one that is not there yet

    def has(self, node: ast.expr) -> bool:
        """Whether an expression of the script is a tensor of one number, or a plain number."""
        return self._is_one(node, self.script.module_of(node))

    def _is_one(self, node: ast.expr, module: Module) -> bool:
        if len(self._active) > _FARTHEST:
            return False
        if node in self._active:
            self._assumed = True
            return True  # `total = total + loss` is one number where all else is that it is made of
        if node in self._known:
            return self._known[node]
        before, self._assumed = self._assumed, False
        self._active.add(node)
        answer = self._look(node, module)
        self._active.discard(node)
        if not answer or not self._assumed or not self._active:
            self._known[node] = answer
        self._assumed = self._assumed or before
        return answer

    def _look(self, node: ast.expr, module: Module) -> bool:
        if isinstance(node, (ast.Name, ast.Attribute)) and self.given.place(node, module) in self._trained:
            # `loss = loss.mean()` comes after the code that reads the losses of all samples.
            return not (isinstance(node, ast.Name) and self._holds_many(node, module))
        if self.numbers.has(node, module):
            return True
        if isinstance(node, ast.IfExp):
            return self._either(node, module)
        parts = operands(node, self._called(node, module))
        if parts is not None:
            return all(self._is_one(part, module) for part in parts)
        if isinstance(node, ast.Call):
            return self._call(node, module)
        if isinstance(node, ast.Subscript):
            return self._entry(node, module)
        return isinstance(node, (ast.Name, ast.Attribute)) and self._variable(node, module)

    def _called(self, node: ast.expr, module: Module) -> str:
        return self.given.imported_name(node.func, module) if isinstance(node, ast.Call) else ""

    def _either(self, choice: ast.IfExp, module: Module) -> bool:
        """`x.mean() if not isinstance(x, int) else x`, or one of two numbers."""
        test, body, orelse = choice.test, choice.body, choice.orelse
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            test, body, orelse = test.operand, orelse, body
        plain = isinstance(test, ast.Call) and dotted(test.func) == "isinstance" and len(test.args) == 2
        if plain and isinstance(test, ast.Call) and dotted(test.args[1]) in ("int", "float"):
            return self._is_one(orelse, module)
        return self._is_one(body, module) and self._is_one(orelse, module)

    def has_many(self, node: ast.expr) -> bool:
        """Whether an expression of the script is seen to hold several numbers: one of each sample or class."""
        return self._holds_many(node, self.script.module_of(node))

    def _holds_many(self, node: ast.expr, module: Module) -> bool:
        gifts = self.given.given(node, module) if isinstance(node, (ast.Name, ast.Attribute)) else None
        return bool(gifts) and all(_keeps_dimensions(gift.value) for gift in gifts or ())

    # -- names and attributes

    def _variable(self, node: ast.Name | ast.Attribute, module: Module) -> bool:
        place, gifts = self.given.place(node, module), self.given.given(node, module)
        if place in self._active:
            self._assumed = True
            return True
        if place is None or gifts is None:
            return False
        if self.given.is_parameter(place) and not self._handed_numbers(place):
            return False
        if not gifts:
            return self.given.is_parameter(place)
        self._active.add(place)
        answer = all(self._gift(gift) for gift in gifts)
        self._active.discard(place)
        return answer

    def _gift(self, gift: Gift) -> bool:
        if gift.how == ELEMENT:
            return self._elements(gift.value, gift.module)
        if gift.how == PART:
            return self._part(gift.value, gift.index, gift.module)
        return self._is_one(gift.value, gift.module)

    def _handed_numbers(self, place: Place) -> bool:
        """Whether all calls of a function pass one number over for a parameter."""
        calls = self.script.interpreter.callers.get(place[0], [])
        for module, call in calls:
            handed = [argument for argument, name in handed_to(call, place[0]) if name == place[1]]
            if len(handed) != 1 or isinstance(handed[0], ast.Starred) or not self._is_one(handed[0], module):
                return False
        return bool(calls)

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
        if name == "builtins.sum" and len(call.args) == 1:
            return self._elements(call.args[0], module)
        if name:
            head, _, last = name.rpartition(".")
            alone = len(call.args) == 1 and not call.keywords
            return head == "torch" and (last == "dot" or (last in _REDUCING and (alone or _is_norm(call, 1))))
        func = call.func
        callees = self.script.callees(call)
        if callees:
            return self._given_back(call, None)
        if not isinstance(func, ast.Attribute) or func.attr not in _REDUCING:
            return False
        return (not call.args and not call.keywords) or _is_norm(call, 0)

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

    # -- containers

    def _elements(self, node: ast.expr, module: Module) -> bool:
        """Whether all that a list, a tuple or a dictionary holds are single numbers."""
        if isinstance(node, (ast.List, ast.Tuple)):
            return all(self._is_one(e, module) for e in node.elts)
        if isinstance(node, ast.Dict):
            return all(self._is_one(e, module) for e in node.values)
        if isinstance(node, (ast.ListComp, ast.GeneratorExp)):
            return self._is_one(node.elt, module)
        if isinstance(node, ast.DictComp):
            return self._is_one(node.value, module)
        if isinstance(node, ast.Call):
            return self._made_of_elements(node, module)
        if not isinstance(node, (ast.Name, ast.Attribute)):
            return False
        gifts = self.given.given(node, module)
        contained = self._put_in(node, module)
        if not gifts or contained is None or not all(self._is_one(one, module) for one in contained):
            return False
        empty = not contained and all(_is_empty(gift.value) for gift in gifts)
        return not empty and all(
            gift.how not in (ELEMENT, PART, ADDED) and self._elements(gift.value, gift.module)
            for gift in gifts
        )

    def _made_of_elements(self, call: ast.Call, module: Module) -> bool:
        name = (dotted(call.func) or "").rpartition(".")[2]
        if isinstance(call.func, ast.Attribute) and call.func.attr == "values" and not call.args:
            return self._elements(call.func.value, module)
        if name == "dict" and len(call.args) == 1 and isinstance(call.args[0], ast.Call):
            zipped = call.args[0]
            if dotted(zipped.func) == "zip" and len(zipped.args) == 2:
                return self._elements(zipped.args[1], module)
        if name == "OrderedDict" and len(call.args) == 1:
            pairs = getattr(call.args[0], "elts", [])
            return bool(pairs) and all(self._part(pair, 1, module) for pair in pairs)
        return name in _PASSED_ON and len(call.args) == 1 and self._elements(call.args[0], module)

    def _entry(self, node: ast.Subscript, module: Module) -> bool:
        """Whether `losses["total"]` is one number: by what is put under that key, or by all there is."""
        if not isinstance(node.value, (ast.Name, ast.Attribute)):
            return False
        key = node.slice.value if isinstance(node.slice, ast.Constant) else None
        if not isinstance(key, str):
            return False
        found: list[ast.expr] = []
        for gift in self.given.given(node.value, module) or ():
            if not isinstance(gift.value, ast.Dict) or None in gift.value.keys:
                return _is_empty(gift.value) and self._all_are_one(found, module)
            named = zip(gift.value.keys, gift.value.values, strict=True)
            found += [value for one, value in named if isinstance(one, ast.Constant) and one.value == key]
        found += [value for under, value in self._stored(node.value, module) if under in (key, None)]
        return self._all_are_one(found, module)

    def _all_are_one(self, found: Iterable[ast.expr], module: Module) -> bool:
        every = list(found)
        return bool(every) and all(self._is_one(one, module) for one in every)

    def _put_in(self, node: ast.expr, module: Module) -> list[ast.expr] | None:
        """What is appended to a container or stored in it; None where it is filled in another way."""
        found = [value for _, value in self._stored(node, module)]
        for attribute in self._used(node, module):
            call = module.tree.parent(attribute)
            if isinstance(call, ast.Call) and call.func is attribute:
                if attribute.attr == "append" and len(call.args) == 1:
                    found.append(call.args[0])
                elif attribute.attr in ("extend", "update", "insert", "setdefault"):
                    return None
        return found

    def _used(self, node: ast.expr, module: Module) -> list[ast.Attribute]:
        text = dotted(node)
        place = self.given.place(node, module)
        return [
            n
            for n in module.tree.nodes(ast.Attribute)
            if dotted(n.value) == text and self.given.place(n.value, module) == place
        ]

    def _stored(self, node: ast.expr, module: Module) -> list[tuple[object, ast.expr]]:
        """What is stored in a container, with the keys that are known."""
        text, place = dotted(node), self.given.place(node, module)
        found: list[tuple[object, ast.expr]] = []
        for target in module.tree.nodes(ast.Subscript):
            stmt = module.tree.parent(target)
            if not isinstance(stmt, (ast.Assign, ast.AugAssign)) or isinstance(target.ctx, ast.Load):
                continue
            if dotted(target.value) == text and self.given.place(target.value, module) == place:
                key = target.slice.value if isinstance(target.slice, ast.Constant) else None
                found.append((key, stmt.value))
        return found


def _keeps_dimensions(node: ast.expr) -> bool:
    """`x.mean(1)`, `F.mse_loss(x, y, reduction="none")`, `output.max(1)[0]`, `output == target`."""
    if isinstance(node, (ast.Subscript, ast.Compare)):
        return True
    if not isinstance(node, ast.Call):
        return False
    if isinstance(node.func, ast.Attribute) and node.func.attr in _REDUCING and node.args:
        return True
    return _may_keep_all(node) or any(kw.arg in ("dim", "axis") for kw in node.keywords)


def _is_empty(node: ast.expr) -> bool:
    if isinstance(node, ast.Call):
        last = (dotted(node.func) or "").rpartition(".")[2]
        return last in ("dict", "list", "OrderedDict", "defaultdict") and not (
            node.args and last != "defaultdict"
        )
    return isinstance(node, (ast.List, ast.Dict)) and not (
        node.elts if isinstance(node, ast.List) else node.keys
    )


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


def _is_norm(call: ast.Call, first: int) -> bool:
    """`x.norm(2)`, `torch.norm(x, p=2)`: of the whole tensor."""
    last = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    stated = [kw.value for kw in call.keywords if kw.arg == "p"]
    return (
        last == "norm"
        and len(stated) == len(call.keywords)
        and len(call.args) - first + len(stated) == 1
        and all(isinstance(one, ast.Constant) for one in [*call.args[first:], *stated])
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
