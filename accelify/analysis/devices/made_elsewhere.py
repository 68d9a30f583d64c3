"""Tensors that functions of modules which are not converted make on the host for a batch that prepare places now.

`one_hot(labels)` of a module of helpers makes `torch.zeros(len(labels), 10)` and scatters into it by the labels: the
script, which moves what it returns, shows nothing of it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from accelify.analysis.devices.locations import Locations
from accelify.analysis.devices.tensor_makers import DEVICE, HOST, HOST_MAKERS, MAKERS
from accelify.analysis.program import Module
from accelify.analysis.scopes import Scope, handed_to, in_order
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import call_keyword, is_constant, target_names, walk
from accelify.analysis.values import Imported

_T = TypeVar("_T")
_NO_MAKERS: frozenset[ast.Call] = frozenset()
_NO_NAMES: frozenset[str] = frozenset()
# Methods after which a tensor is elsewhere, or that give no tensor.
_LEAVING = frozenset("cpu cuda to type_as type numpy tolist item size dim numel nelement".split())
# Those that return a number without a dimension argument: a tensor without dimensions works on any device.
_REDUCING = frozenset("sum mean max min prod std var norm median argmax argmin all any".split())
# Those that take tensors from anywhere, or only look at their shape.
_TAKING_ANY = frozenset(
    "to type_as copy_ expand_as view_as reshape_as resize_as_ new_tensor append extend".split()
)
# Methods that only tensors have, among all possible arguments of a function.
_OF_TENSORS = frozenset(
    "size dim view unsqueeze long float int double half bool detach clone contiguous permute new type numel".split()
)
_HOST_TYPED = re.compile(rb"\b(Float|Double|Half|Long|Int|Short|Char|Byte|Bool)Tensor\b")
_FUNCTIONS = frozenset({"torch", "torch.nn.functional", "torch.linalg"})
# Functions of helpers may call others, as far as this.
_DEEPEST = 2


class MadeElsewhere(NamedTuple):
    """A call of the script, and what a function that it reaches makes on the host for the call's arguments.

    `beside` is the parameter whose device it belongs on, where that can be nothing but a tensor. `gives_it_back` tells
    that the call returns tensors alone, and those of the batch or made for it.
    """

    call: ast.Call
    callee: Scope
    module: Module
    maker: ast.Call
    beside: str | None
    gives_it_back: bool


def made_elsewhere(script: ScriptModel, before: Locations, after: Locations) -> Iterator[MadeElsewhere]:
    """What is made so, by each call that passes what was on the host and is placed by prepare now.

    Args:
        script: its model, with the modules that are converted.
        before: where tensors are in the script as it is.
        after: where they are once prepare places its batches.
    """
    if any(module.tree.mentions(b"set_default_") for module in script.program.modules.values()):
        return
    for call in script.calls():
        for callee in in_order(script.callees(call)):
            if not _stays(script, callee):
                continue
            given = _given_from_host(call, callee, before, after)
            body = _Body(script, callee, given, _is_given_tensors(script, after, callee, given))
            for scope, maker, beside in body.meetings(_DEEPEST) if given else ():
                inner = script.interpreter.module_of(scope)
                yield MadeElsewhere(call, scope, inner, maker, beside, body.gives_only_tensors())


def typed_elsewhere(
    script: ScriptModel, before: Locations, after: Locations
) -> Iterator[tuple[Module, ast.Call]]:
    """The `isinstance(rows, torch.LongTensor)` of such functions, each with its module, of what prepare places now.

    Args:
        script: its model, with the modules that are converted.
        before: where tensors are in the script as it is.
        after: where they are once prepare places its batches.
    """
    others = [m for m in script.program.modules.values() if m not in script.modules]
    if not any(m.tree.mentions(b"isinstance") and m.tree.mentions(_HOST_TYPED) for m in others):
        return
    for call in script.calls():
        for callee in in_order(script.callees(call)):
            given = _given_from_host(call, callee, before, after) if _stays(script, callee) else _NO_NAMES
            if given:
                yield from _Body(script, callee, given).typed(_DEEPEST)


def _given_from_host(call: ast.Call, callee: Scope, before: Locations, after: Locations) -> frozenset[str]:
    """The parameters that a call passes what was on the host and is placed by prepare now."""
    return frozenset(
        name
        for argument, name in handed_to(call, callee)
        if after.of(argument) == {DEVICE} and before.of(argument) == {HOST}
    )


def _stays(script: ScriptModel, scope: Scope) -> bool:
    module = script.interpreter.module_of(scope)
    return module not in script.modules and module.path is not None


def _is_given_tensors(script: ScriptModel, after: Locations, callee: Scope, names: frozenset[str]) -> bool:
    """Whether nothing but the script calls a function, and passes its parameters nothing but what is placed."""
    if script.called_from_elsewhere(callee):
        return False
    pairs = [pair for call in script.callers(callee) for pair in handed_to(call, callee)]
    return all(after.of(argument) == {DEVICE} for argument, name in pairs if name in names)


@dataclass
class _Body:
    """A function that gets tensors of a batch under some names; other arguments only where it is not `alone`."""

    script: ScriptModel
    scope: Scope
    given: frozenset[str]
    alone: bool = False
    module: Module = field(init=False)

    def __post_init__(self) -> None:
        self.module = self.script.interpreter.module_of(self.scope)
        bound = self._bound()
        # Where a parameter is rebound for good, for the reads after that.
        self._until: dict[str, int] = {}
        # By variable: the parameters from which it is computed, or the calls that made it.
        self._roots = {name: frozenset({name}) for name in self.given}
        self._makers: dict[str, frozenset[ast.Call]] = {}
        known = -1
        while known < len(self._roots) + len(self._makers):
            known = len(self._roots) + len(self._makers)
            for name, values in bound.items():
                _hold(self._makers, name, values, self.makers)
                if name not in self._makers:
                    _hold(self._roots, name, values, self.roots)
        lost = set[str]()
        for name in self.given:
            others = [value for value in bound.get(name, ()) if value is None or not self.roots(value)]
            if others and all(value is not None and not self._is_repeated(value) for value in others):
                self._until[name] = min(self.module.tree.end(value) for value in others if value is not None)
            elif others:
                lost.add(name)
        self._roots = {name: roots for name, roots in self._roots.items() if not roots & lost}

    def _is_repeated(self, node: ast.expr) -> bool:
        """Whether a node is in a loop of the function, so that what it binds is read in front of it, too."""
        loops = (ast.For, ast.AsyncFor, ast.While)
        return any(isinstance(a, loops) and a in self.scope.nodes for a in self.module.tree.ancestors(node))

    def _bound(self) -> dict[str, list[ast.expr | None]]:
        """What each name is bound to; None for what is not written out."""
        found: dict[str, list[ast.expr | None]] = {}
        stated: set[ast.expr] = set()
        for stmt in self.scope.of_type(ast.Assign, ast.AugAssign):
            if isinstance(stmt, ast.Assign):
                for target in stmt.targets:
                    for one, value in _pairs(target, stmt.value):
                        for name in target_names(one):
                            found.setdefault(name, []).append(value)
                    stated.update(n for n in walk(target) if isinstance(n, ast.expr))
            elif isinstance(stmt, ast.AugAssign):
                stated.add(stmt.target)  # which changes no place
        for node in self.scope.of_type(ast.Name):
            if isinstance(node.ctx, ast.Store) and node not in stated:
                found.setdefault(node.id, []).append(None)
        return found

    def _name(self, func: ast.expr) -> tuple[str, str]:
        """The module and the name of a library's function."""
        found = self.script.interpreter.evaluate(self.module, self.scope, func)
        names = {w.name for w in found if isinstance(w, Imported)}
        head, _, last = names.pop().rpartition(".") if len(names) == 1 else ("", "", "")
        return head, last

    def roots(self, node: ast.expr) -> frozenset[str]:
        """The parameters that an expression is a tensor of; none for what is elsewhere or is no tensor."""
        if isinstance(node, ast.Name):
            if node.id in self._until and self.module.tree.start(node) > self._until[node.id]:
                return _NO_NAMES
            return self._roots.get(node.id, _NO_NAMES)
        if isinstance(node, (ast.Subscript, ast.Starred)):
            return self.roots(node.value)
        if isinstance(node, ast.Attribute):
            return self.roots(node.value) if node.attr in ("data", "T") else _NO_NAMES
        if isinstance(node, ast.UnaryOp):
            return self.roots(node.operand) if not isinstance(node.op, ast.Not) else _NO_NAMES
        if isinstance(node, (ast.BinOp, ast.Compare)):
            return _NO_NAMES.union(*map(self.roots, _sides(node)))
        if not isinstance(node, ast.Call):
            return _NO_NAMES
        head, _ = self._name(node.func)
        if head in _FUNCTIONS:
            return _NO_NAMES.union(*map(self.roots, _spread(node.args)))
        method = node.func
        if head or not isinstance(method, ast.Attribute) or method.attr in _LEAVING:
            return _NO_NAMES
        return self.roots(method.value)

    def makers(self, node: ast.expr) -> frozenset[ast.Call]:
        """The calls that make, on the host, what an expression is."""
        if isinstance(node, ast.Name):
            return self._makers.get(node.id, _NO_MAKERS)
        if isinstance(node, ast.Subscript):
            taken = [n for n in walk(node.slice) if isinstance(n, ast.Slice)]
            return self.makers(node.value) if taken or self.roots(node.slice) else _NO_MAKERS
        if isinstance(node, ast.UnaryOp):
            return self.makers(node.operand) if not isinstance(node.op, ast.Not) else _NO_MAKERS
        if isinstance(node, (ast.BinOp, ast.Compare)):
            return _NO_MAKERS.union(*map(self.makers, _sides(node)))
        if not isinstance(node, ast.Call):
            return _NO_MAKERS
        head, last = self._name(node.func)
        if head == "torch" and last in MAKERS | HOST_MAKERS:
            return frozenset({node}) if _is_made_on_host(node, last) else _NO_MAKERS
        if head in _FUNCTIONS:
            return (
                _NO_MAKERS.union(*map(self.makers, _spread(node.args)))
                if last not in _REDUCING
                else _NO_MAKERS
            )
        method = node.func
        if head or not isinstance(method, ast.Attribute) or method.attr in _LEAVING:
            return _NO_MAKERS
        if method.attr in _REDUCING and not node.args and not node.keywords:
            return _NO_MAKERS
        return self.makers(method.value)

    def meetings(self, depth: int) -> Iterator[tuple[Scope, ast.Call, str | None]]:
        """The function, the call that makes a tensor on the host, and the parameter on whose device it belongs."""
        if not self._roots:
            return
        for node in self.scope.nodes:
            operands, indices = self._together(node)
            met = [e for e in [*operands, *indices] if self.roots(e)]
            made = _NO_MAKERS.union(*map(self.makers, operands)) if met else _NO_MAKERS
            for maker in self.module.tree.in_order(made):
                yield self.scope, maker, self._beside(maker, met)
            if isinstance(node, ast.Call) and depth:
                for callee in in_order(self.script.callees(node)):
                    given = frozenset(name for one, name in handed_to(node, callee) if self.roots(one))
                    if given and _stays(self.script, callee):
                        yield from _Body(self.script, callee, given).meetings(depth - 1)

    def typed(self, depth: int) -> Iterator[tuple[Module, ast.Call]]:
        """The tests for a tensor type of the CPU, here and in what is called with the same tensors."""
        for node in self.scope.nodes if self._roots else ():
            if not isinstance(node, ast.Call):
                continue
            if isinstance(node.func, ast.Name) and node.func.id == "isinstance" and len(node.args) == 2:
                if self.roots(node.args[0]):
                    yield self.module, node
            for callee in in_order(self.script.callees(node)) if depth else ():
                given = frozenset(name for one, name in handed_to(node, callee) if self.roots(one))
                if given and _stays(self.script, callee):
                    yield from _Body(self.script, callee, given).typed(depth - 1)

    def _together(self, node: ast.AST) -> tuple[list[ast.expr], list[ast.expr]]:
        """The operands of an expression that have to be together, and the indices that have to be with them."""
        if isinstance(node, (ast.BinOp, ast.Compare)):
            return _sides(node), []
        if isinstance(node, ast.AugAssign):
            return [node.target, node.value], []
        if isinstance(node, ast.Subscript):
            parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
            # One element is a number, which is an index wherever it is.
            return [node.value], [p for p in parts if not isinstance(p, ast.Subscript)]
        if not isinstance(node, ast.Call):
            return [], []
        head, last = self._name(node.func)
        given = _spread([*node.args, *[kw.value for kw in node.keywords if kw.arg != "device"]])
        if head in _FUNCTIONS:
            makes = last in MAKERS | HOST_MAKERS or last.endswith("_like")
            return ([], []) if makes else (given, [])
        if head or not isinstance(node.func, ast.Attribute) or node.func.attr in _TAKING_ANY:
            return [], []
        return ([], []) if self.script.callees(node) else ([node.func.value, *given], [])

    def _beside(self, maker: ast.Call, met: list[ast.expr]) -> str | None:
        """A parameter that is a tensor for certain, where nothing of what is made is read as an array."""
        if any(self.makers(read) & {maker} for read in self._read_as_arrays()):
            return None
        names = [n for n in self.scope.positional() if any(n in self.roots(e) for e in met)]
        return next((name for name in names if self._is_tensor(name, met)), None)

    def _is_tensor(self, name: str, met: list[ast.expr]) -> bool:
        if self.alone and any(isinstance(e, ast.Name) and e.id == name for e in met):
            return True
        return any(
            isinstance(n, ast.Call)
            and isinstance(n.func, ast.Attribute)
            and n.func.attr in _OF_TENSORS
            and isinstance(n.func.value, ast.Name)
            and n.func.value.id == name
            for n in self.scope.nodes
        )

    def _read_as_arrays(self) -> Iterator[ast.expr]:
        for node in self.scope.nodes:
            if isinstance(node, ast.Call):
                if isinstance(node.func, ast.Attribute) and node.func.attr == "numpy":
                    yield node.func.value
                if self._name(node.func)[0].split(".")[0] not in ("", "torch", "builtins"):
                    yield from node.args

    def gives_only_tensors(self) -> bool:
        """Whether everything that the function returns is a tensor from its arguments, or a tensor that it makes."""
        returns = [n.value for n in self.scope.of_type(ast.Return)]
        parts = [e for value in returns for e in (value.elts if isinstance(value, ast.Tuple) else [value])]
        return bool(parts) and all(e is not None and (self.makers(e) or self.roots(e)) for e in parts)


def _hold(
    contained: dict[str, frozenset[_T]],
    name: str,
    values: list[ast.expr | None],
    of: Callable[[ast.expr], frozenset[_T]],
) -> None:
    """Note what a name is, where it is never anything else: `table = table.scatter_(...)` needs no other name."""
    if name in contained:
        return
    first: frozenset[_T] = frozenset()
    first = first.union(*(of(value) for value in values if value is not None))
    if first:
        contained[name] = first
        if not all(value is not None and of(value) for value in values):
            del contained[name]


def _pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    """What an assignment binds to what: pair by pair in `a, b = x, y`."""
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        yield from zip(target.elts, value.elts, strict=True)
    elif isinstance(target, (ast.Name, ast.Tuple, ast.List)):
        yield target, value


def _sides(node: ast.BinOp | ast.Compare) -> list[ast.expr]:
    if isinstance(node, ast.BinOp):
        return [node.left, node.right]
    if any(isinstance(op, (ast.Is, ast.IsNot, ast.In, ast.NotIn)) for op in node.ops):
        return []
    return [node.left, *node.comparators]


def _spread(given: list[ast.expr]) -> list[ast.expr]:
    """Arguments, those of a display one by one: `torch.cat([a, b])`."""
    return [e for a in given for e in (a.elts if isinstance(a, (ast.List, ast.Tuple)) else [a])]


def _is_made_on_host(call: ast.Call, last: str) -> bool:
    """Whether a call of torch makes a tensor with dimensions, and without a device argument."""
    if call_keyword(call, "device") is not None or any(kw.arg in (None, "out") for kw in call.keywords):
        return False
    first = call.args[0] if call.args else None
    if last == "tensor":
        return isinstance(first, (ast.List, ast.Tuple, ast.ListComp))
    empty = isinstance(first, (ast.Tuple, ast.List)) and not first.elts
    return not empty and not is_constant(first, ())


__all__ = ["MadeElsewhere", "made_elsewhere"]
