"""Models whose weights are replaced by tensors that are on the host, so that a later move brings them back.

for p, w in zip(net.parameters(), weights):
    p.data = torch.from_numpy(w)
net.to(device)
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accelify.analysis import values as v
from accelify.analysis.devices.tensor_makers import HOST_MAKERS, MAKERS
from accelify.analysis.program import Module
from accelify.analysis.scopes import Scope
from accelify.analysis.script import ScriptModel
from accelify.analysis.statements.assignments import assigned_once
from accelify.analysis.syntax import call_keyword, calls_in, dotted, target_names, walk
from accelify.analysis.values import Entity

_WEIGHTS = frozenset({"parameters", "named_parameters"})
# What leaves a tensor of the host no longer there: a move, or the place of another tensor.
_MOVING = frozenset({"cuda", "to", "type_as"})
_WORDS = (b".data =", b".data=", b"Parameter(")


def filled_from_host(script: ScriptModel) -> set[Entity]:
    """The models that some function gives such weights, whatever module it is in."""
    found: set[Entity] = set()
    for module in {id(m.tree): m for m in [script.module, *script.program.modules.values()]}.values():
        if any(module.tree.mentions(word) for word in _WORDS):
            for holder in _replaced(module):
                if is_making(script, module.scopes.of(holder)):
                    continue
                contained = script.interpreter.evaluate(module, module.scopes.of(holder), holder)
                found |= {one for one in contained if isinstance(one, Entity) and one.kind == v.MODEL}
    return found


def is_making(script: ScriptModel, scope: Scope, far: int = 2) -> bool:
    """Whether a method only runs while its object is made: nothing has moved the model by then."""
    if not scope.is_method or not far:
        return False
    if scope.name.endswith("__init__"):
        return True
    callers = script.interpreter.callers.get(scope, [])
    return bool(callers) and all(is_making(script, m.scopes.of(call), far - 1) for m, call in callers)


def _replaced(module: Module) -> Iterator[ast.expr]:
    """What is named as the owner of a weight where that is replaced by a tensor of the host."""
    for stmt in module.tree.nodes(ast.Assign):
        target = stmt.targets[0]
        if not isinstance(target, ast.Attribute) or not _is_on_host(module, stmt.value):
            continue
        if target.attr == "data" and isinstance(target.value, ast.Name):
            yield from _gone_through(module, stmt, target.value.id)
            continue
        # `net.head.weight.data = ...`, `net.head.weight = nn.Parameter(...)`
        weight = target.value if target.attr == "data" else target
        if isinstance(weight, ast.Attribute) and (target.attr == "data" or _makes_weight(stmt.value)):
            owner = weight.value
            while isinstance(owner, (ast.Attribute, ast.Subscript)):
                yield owner
                owner = owner.value
            yield owner


def _gone_through(module: Module, stmt: ast.stmt, name: str) -> Iterator[ast.expr]:
    """The models whose parameters the loops around a statement go through under a name."""
    for loop in module.tree.ancestors(stmt):
        if isinstance(loop, ast.For) and name in target_names(loop.target):
            for call in walk(loop.iter):
                if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
                    if call.func.attr in _WEIGHTS:
                        yield call.func.value


def _makes_weight(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and (dotted(value.func) or "").rpartition(".")[2] == "Parameter"


def _is_on_host(module: Module, value: ast.expr, far: int = 2) -> bool:
    """Whether a tensor is made of numbers, and moved nowhere."""
    calls = calls_in(value)
    names = [(dotted(call.func) or "").rpartition(".") for call in calls]
    moved = any(isinstance(c.func, ast.Attribute) and c.func.attr in _MOVING for c in calls)
    if moved or any(call_keyword(call, "device") is not None for call in calls):
        return False
    if any(head in ("torch", "th") and last in MAKERS | HOST_MAKERS for head, _, last in names):
        return True
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        value = value.func.value  # `weights.float()`
    made = assigned_once(module.scopes.of(value), value) if isinstance(value, ast.Name) and far else None
    return made is not None and _is_on_host(module, made, far - 1)
