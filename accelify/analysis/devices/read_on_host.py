"""Tensors that functions of modules which are not converted read on the host, where prepare no longer leaves them.

`prepare_data(batch)` of a module of helpers sorts a batch and asks for its `.numpy()`: the script shows nothing of it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from accelify.analysis.devices.locations import DEVICE, HOST, Locations
from accelify.analysis.program import Module
from accelify.analysis.scopes import Scope, handed_to, in_order, spread_to
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import dotted, is_constant, target_names, walk
from accelify.analysis.values import Imported

# What brings a tensor to the host, or makes no tensor of it.
_FETCHING = frozenset("cpu numpy tolist item size shape dim numel".split())
# Functions of helpers may call others, as far as this.
_DEEPEST = 2


@dataclass(frozen=True)
class HostRead:
    """A call of the script, the function that it runs elsewhere, and what is read on the host there.

    `certain` where that can be nothing but a tensor: its `.numpy()` is asked for.
    """

    call: ast.Call
    callee: Scope
    module: Module
    tensor: ast.expr
    certain: bool


def reads_on_host(script: ScriptModel, before: Locations, after: Locations) -> Iterator[HostRead]:
    """Calls that hand such a function what was on the host and is placed by prepare now.

    Args:
        script: its model, with the modules that are converted.
        before: where tensors lie in the script as it is.
        after: where they lie once prepare places its batches.
    """
    others = {m for m in script.program.modules.values() if m not in script.modules and _has_word(m)}
    for call in script.calls() if others else ():
        for callee in in_order(script.callees(call)):
            module = script.interpreter.module_of(callee)
            if module not in others or module.path is None:
                continue
            given = [
                name
                for argument, name in [*handed_to(call, callee), *spread_to(call, callee)]
                if DEVICE in after.of(argument) and before.of(argument) == {HOST}
            ]
            for scope, tensor, certain in _reads(script, callee, frozenset(given), _DEEPEST) if given else ():
                inner = script.interpreter.module_of(scope)
                if inner not in script.modules and inner.path is not None:
                    yield HostRead(call, callee, inner, tensor, certain)


def _has_word(module: Module) -> bool:
    return b".numpy(" in module.tree.data or b"numpy" in module.tree.data


def _reads(
    script: ScriptModel, scope: Scope, given: frozenset[str], depth: int
) -> Iterator[tuple[Scope, ast.expr, bool]]:
    """What a function, or one that it calls, reads on the host of tensors that it is given under some names."""
    module = script.interpreter.module_of(scope)
    assigned = [n for n in scope.nodes if isinstance(n, ast.Assign)]
    held, known = set(given), 0
    while len(held) > known:
        known = len(held)
        for stmt in assigned:
            if _is_held(stmt.value, held):
                held.update(name for target in stmt.targets for name in target_names(target))
    fetched = [
        (name, module.tree.end(stmt))
        for stmt in assigned
        if _is_fetched(stmt.value)
        for target in stmt.targets
        for name in target_names(target)
    ]
    for call in scope.calls:
        start = module.tree.start(call)
        here = held - {name for name, end in fetched if end <= start}
        read = call.func.value if isinstance(call.func, ast.Attribute) and call.func.attr == "numpy" else None
        if read is not None and _is_held(read, here):
            yield scope, read, True
        if _is_of_numpy(script, module, scope, call):
            yield from ((scope, argument, False) for argument in call.args if _is_held(argument, here))
        for callee in in_order(script.callees(call)) if depth else ():
            inner = [name for argument, name in handed_to(call, callee) if _is_held(argument, here)]
            if inner:
                yield from _reads(script, callee, frozenset(inner), depth - 1)


def _is_held(node: ast.expr, held: set[str]) -> bool:
    """Whether an expression is a tensor of such a name, a part of it or what torch makes of it."""
    if isinstance(node, ast.Name):
        return node.id in held
    if isinstance(node, (ast.Subscript, ast.Starred)):
        return _is_held(node.value, held)
    if isinstance(node, ast.Attribute):
        return node.attr in ("data", "T") and _is_held(node.value, held)
    if isinstance(node, ast.BinOp):
        return _is_held(node.left, held) or _is_held(node.right, held)
    if isinstance(node, (ast.Tuple, ast.List)):
        return any(_is_held(e, held) for e in node.elts)
    if not isinstance(node, ast.Call) or any(is_constant(a, "cpu") for a in node.args):
        return False
    if (dotted(node.func) or "").startswith(("torch.", "F.")):
        return any(_is_held(a, held) for a in node.args)
    method = node.func
    return isinstance(method, ast.Attribute) and method.attr not in _FETCHING and _is_held(method.value, held)


def _is_of_numpy(script: ScriptModel, module: Module, scope: Scope, call: ast.Call) -> bool:
    if not isinstance(call.func, ast.Attribute):
        return False
    found = script.interpreter.evaluate(module, scope, call.func)
    return any(isinstance(w, Imported) and w.name.startswith("numpy.") for w in found)


def _is_fetched(node: ast.expr) -> bool:
    """Whether an expression brings a tensor to the host, or asks for numbers and text of it."""
    for part in walk(node):
        if isinstance(part, ast.Attribute) and part.attr in _FETCHING:
            return True
        if isinstance(part, ast.Call) and any(is_constant(a, "cpu") for a in part.args):
            return True
    return False


def can_be_mended(read: HostRead) -> bool:
    """Whether the module can be given a copy to the host: one that trains is converted by itself."""
    return read.certain and b".backward(" not in read.module.tree.data
