"""Moves to a GPU by functions of the project's other modules, which the script only calls: `x = to_variable(x)`."""

from __future__ import annotations

import ast

from accelify.analysis import knowledge as k
from accelify.analysis import values as v
from accelify.analysis.program import Module
from accelify.analysis.scopes import Scope
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import Node, call_argument, calls_in, dotted, names_in, target_names, walk

_PLACED = (v.MODEL, v.BATCH, v.OUTPUT, v.TENSOR, v.LOADER)
# How many calls are between the script and a move at most.
_DEEPEST = 3


def helpers_use_accelerator(script: ScriptModel) -> bool:
    """Whether functions of other modules that take or give a model, a loader or tensors of the script use a GPU."""
    asking: dict[Module, set[str]] = {}
    return any(
        any(_uses_gpu(script, callee, asking, _DEEPEST) for callee in script.callees(call))
        for call in script.calls()
        if script.is_a(call, *_PLACED)
        or any(script.is_a(a, *_PLACED) for a in [*call.args, *[kw.value for kw in call.keywords]])
    )


def _uses_gpu(script: ScriptModel, callee: Scope, asking: dict[Module, set[str]], depth: int) -> bool:
    module = script.interpreter.module_of(callee)
    if module not in script.modules:
        if module not in asking:
            asking[module] = {n for stmt in module.scopes.module.node.body for n in _names_of_gpus(stmt)}
        nodes = [node for node in walk(callee.node) if not _goes_along(module, callee, node)]
        if any(_is_use(node) for node in nodes):
            return True
        if any(isinstance(n, ast.Name) and n.id in asking[module] for n in nodes):
            return True
    return depth > 0 and any(
        _uses_gpu(script, inner, asking, depth - 1)
        for call in calls_in(callee.node)
        for inner in script.callees(call)
        if inner is not callee
    )


def _goes_along(module: Module, callee: Scope, node: Node) -> bool:
    """Whether a move only takes something to where a tensor is already: `if x.is_cuda: c = c.cuda()`."""
    if not isinstance(node, ast.Call) or not _is_use(node):
        return False
    inner: ast.AST = node
    for around in module.tree.ancestors(node):
        if isinstance(around, (ast.If, ast.IfExp)):
            test = around.test
            body = around.body if isinstance(around.body, list) else [around.body]
            if (
                isinstance(test, ast.Attribute)
                and test.attr == "is_cuda"
                and any(inner is part for part in body)
            ):
                return True
        if around is callee.node:
            return False
        inner = around
    return False


def _names_of_gpus(stmt: ast.stmt) -> set[str]:
    """What a module assigns from a question for a GPU: `where = "cuda" if torch.cuda.is_available() else "cpu"`."""
    if not isinstance(stmt, (ast.Assign, ast.AnnAssign)) or not any(_is_use(n) for n in walk(stmt)):
        return set()
    targets = stmt.targets if isinstance(stmt, ast.Assign) else [stmt.target]
    return {name for target in targets for name in target_names(target)}


def _is_use(node: Node) -> bool:
    if isinstance(node, ast.Call):
        name = dotted(node.func) or (node.func.attr if isinstance(node.func, ast.Attribute) else "")
        return name.rsplit(".", 1)[-1] == "cuda" or name.endswith(("cuda.is_available", "cuda.set_device"))
    return (
        isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and node.value != "cpu"
        and bool(k.DEVICE_TEXT.match(node.value))
    )


def flags_of_helpers(script: ScriptModel) -> list[ast.expr]:
    """What the script passes to flags of functions that decide on their moves: `cuda(x, args.cuda)`."""
    found = []
    for call in script.calls():
        for callee in script.callees(call):
            module = script.interpreter.module_of(callee)
            for name in _deciding_parameters(module, callee):
                names = callee.positional()
                if name not in names:
                    continue
                # The script writes no `self`.
                place = names.index(name) - (callee.self_name() is not None)
                given = call_argument(call, place, name)
                if given is not None and not isinstance(given, ast.Constant):
                    found.append(given)
    return found


def _deciding_parameters(module: Module, callee: Scope) -> set[str]:
    """The parameters of a function whose tests decide about its moves."""
    parameters = {argument.arg for argument in callee.parameters()}
    found: set[str] = set()
    for call in walk(callee.node):
        if not (
            isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "cuda"
        ):
            continue
        for ancestor in module.tree.ancestors(call):
            if isinstance(ancestor, (ast.If, ast.IfExp)):
                found |= names_in(ancestor.test) & parameters
    return {name for name in found if k.FLAG_NAME.search(name)}
