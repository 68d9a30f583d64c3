"""GPU numbers passed to a function or class of another module, which puts tensors on them: `Head([0, 1])`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from accelify.analysis import values as v
from accelify.analysis.program import Module
from accelify.analysis.schedules.steps import sources
from accelify.analysis.scopes import Scope, handed_to, in_order
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import call_argument, dotted, is_constant, target_names, walk

_NAMED = re.compile(r"gpu|device_?ids?$|cuda_?ids?$", re.IGNORECASE)
_PUTS = (b".cuda(", b".to(")
_THROUGH = frozenset({"zip", "enumerate"})


@dataclass(frozen=True, eq=False)
class HandedNumber:
    """A call of the script that passes the number of a GPU, or a list of them, and the place that goes by it."""

    call: ast.Call
    argument: ast.expr
    callee: Scope
    module: Module
    place: ast.Call
    several: bool


def handed_numbers(script: ScriptModel) -> Iterator[HandedNumber]:
    """The calls of a script that pass functions of modules which stay as they are such numbers."""
    others = {
        m
        for m in script.program.modules.values()
        if m not in script.modules and any(m.tree.mentions(word) for word in _PUTS)
    }
    for call in script.calls() if others else ():
        for callee in in_order(script.callees(call)):
            module = script.interpreter.module_of(callee)
            if module not in others:
                continue
            for argument, name in handed_to(call, callee):
                if not _is_number(script, argument, name):
                    continue
                found = _place(module, callee, name)
                if found is not None:
                    yield HandedNumber(call, argument, callee, module, *found)
                    break


def _is_number(script: ScriptModel, argument: ast.expr, name: str) -> bool:
    """Whether an argument is the number of a GPU or a list of them, by its value or, where that is open, its name."""
    given = [argument]
    if isinstance(argument, (ast.Name, ast.Attribute)):
        given = list(sources(script, argument))
    if script.is_a(argument, v.DEVICE) or any(isinstance(g, ast.Compare) for g in given):
        return False
    written = [g for g in given if isinstance(g, (ast.Constant, ast.List, ast.Tuple, ast.UnaryOp))]
    if written and len(written) == len(given):
        return any(_counts(g) for g in written)
    asked = (dotted(argument) or "").rpartition(".")[2]
    return bool(_NAMED.search(name) and (not asked or _NAMED.search(asked)))


def _counts(node: ast.expr) -> bool:
    if isinstance(node, (ast.List, ast.Tuple)):
        return bool(node.elts) and all(_counts(e) for e in node.elts)
    return isinstance(node, ast.Constant) and type(node.value) is int


def _place(module: Module, callee: Scope, name: str) -> tuple[ast.Call, bool] | None:
    """Where a function, or a method of the class that it makes, uses its argument as a device; whether it is a list."""
    found = _in(callee, name)
    owner = callee.owner_class
    if found is not None or owner is None or callee.name.rpartition(".")[2] != "__init__":
        return found
    own = callee.self_name()
    retained = [
        dotted(target)
        for stmt in callee.of_type(ast.Assign)
        if isinstance(stmt.value, ast.Name) and stmt.value.id == name
        for target in stmt.targets
        if isinstance(target, ast.Attribute) and dotted(target.value) == own
    ]
    for method in module.scopes.functions() if retained else ():
        for attribute in retained if method.owner_class is owner else ():
            found = _in(method, f"{method.self_name()}.{(attribute or '').partition('.')[2]}")
            if found is not None:
                return found
    return None


def _in(scope: Scope, name: str) -> tuple[ast.Call, bool] | None:
    one_by_one: set[str] = set()
    for node in walk(scope.node):
        if isinstance(node, (ast.For, ast.comprehension)):
            through = node.iter
            if isinstance(through, ast.Call) and dotted(through.func) in _THROUGH:
                parts = through.args
            else:
                parts = [through]
            if any(dotted(part) == name for part in parts):
                one_by_one |= set(target_names(node.target))
    for node in walk(scope.node):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        device = call_argument(node, 0, "device") if node.func.attr in ("cuda", "to") else None
        if isinstance(device, ast.Subscript) and dotted(device.value) == name:
            if not isinstance(device.slice, ast.Constant) or is_constant(device.slice, 0):
                return node, True
        elif isinstance(device, ast.Name) and device.id in one_by_one:
            return node, True
        elif device is not None and dotted(device) == name and node.func.attr == "cuda":
            return node, False
    return None


__all__ = ["HandedNumber", "handed_numbers"]
