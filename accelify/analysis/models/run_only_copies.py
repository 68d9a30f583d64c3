"""Copies of models that are only run: nobody reads their gradients, and a wrapper that is copied along waits for them.

An attack copies the model, takes its head off and asks for the gradient of the picture. The wrapper's copy would expect
gradients for the parts that were there when it was made.
"""

from __future__ import annotations

import ast

from accelify.analysis.scopes import Scope
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import Tree
from accelify.analysis.values import Imported

_RUNNING = frozenset(
    {"eval", "train", "to", "cuda", "cpu", "float", "double", "half", "zero_grad", "requires_grad_"}
)


def is_run_only(script: ScriptModel, scope: Scope, call: ast.Call) -> bool:
    """Whether a call in a function that calls backward copies something, of which no gradient is read afterwards."""
    tree = script.interpreter.module_of(scope).tree
    stmt = tree.parent(call)
    if not _is_deepcopy(script, scope, call) or not isinstance(stmt, ast.Assign) or len(stmt.targets) != 1:
        return False
    target = stmt.targets[0]
    if not isinstance(target, ast.Name) or stmt not in scope.node.body or scope.children:
        return False
    afterwards = [n for n in _reads(scope, target.id) if tree.is_after(n, stmt)]
    backward = any(isinstance(n, ast.Attribute) and n.attr == "backward" for n in scope.nodes)
    return backward and all(_runs(tree, name) for name in afterwards)


def copied_parameters(script: ScriptModel, function: Scope) -> set[str]:
    """The parameters of which a function only takes such a copy, to go on with that."""
    tree = script.interpreter.module_of(function).tree
    if function.kind != "function" or not tree.mentions("deepcopy"):
        return set()
    found = set()
    for call in function.nodes:
        given = call.args[0] if isinstance(call, ast.Call) and len(call.args) == 1 else None
        if not isinstance(call, ast.Call) or not isinstance(given, ast.Name):
            continue
        if not function.takes(given.id) or not is_run_only(script, function, call):
            continue
        stmt = tree.parent(call)
        again = isinstance(stmt, ast.Assign) and any(
            isinstance(t, ast.Name) and t.id == given.id for t in stmt.targets
        )
        others = [n for n in _reads(function, given.id) if n is not given]
        if all(again and tree.is_after(n, call) for n in others):
            found.add(given.id)
    return found


def _is_deepcopy(script: ScriptModel, scope: Scope, call: ast.Call) -> bool:
    module = script.interpreter.module_of(scope)
    found = script.interpreter.evaluate(module, scope, call.func)
    return any(isinstance(w, Imported) and w.name == "copy.deepcopy" for w in found)


def _reads(scope: Scope, name: str) -> list[ast.Name]:
    return [n for n in scope.of_type(ast.Name) if n.id == name and isinstance(n.ctx, ast.Load)]


def _runs(tree: Tree, name: ast.Name) -> bool:
    """Whether a read of a copy runs it, switches it over or sets a part of it."""
    parent = tree.parent(name)
    if isinstance(parent, ast.Call):
        return parent.func is name
    if isinstance(parent, ast.Attribute) and parent.attr in _RUNNING:
        call = tree.parent(parent)
        return isinstance(call, ast.Call) and call.func is parent
    while isinstance(parent, ast.Attribute):
        if isinstance(parent.ctx, ast.Store):
            return isinstance(tree.parent(parent), ast.Assign)
        parent = tree.parent(parent)
    return False
