"""What a model counts while it runs: steps of a solver, rows left out. Each process counts for its batches only."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accelify.analysis import values as v
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import Tree, dotted, names_in
from accelify.analysis.values import Class, Entity


def counted_in_forward(script: ScriptModel) -> list[ast.Attribute]:
    """The reads of attributes (`net.calls`) to which a model adds something of its batch, outside of the model."""
    counting: dict[str, list[Class]] = {}
    modules = {id(tree): _adds(tree) for tree in {c.module.tree for c in script.interpreter.classes()}}
    for cls in script.interpreter.classes():
        if modules[id(cls.module.tree)] and script.interpreter.kind_of_class(cls) == v.MODEL:
            for name in _counts(script, cls):
                counting.setdefault(name, []).append(cls)
    if not counting:
        return []
    return [
        node
        for node in script.tree.nodes(ast.Attribute)
        if node.attr in counting
        and isinstance(node.ctx, ast.Load)
        and script.scope_of(node).owner_class not in {c.scope.node for c in counting[node.attr]}
        and any(
            t.cls is not None and set(t.cls.ancestry()) & set(counting[node.attr])
            for t in script.models_of(node.value) | script.entities(node.value, v.MODEL)
        )
    ]


def _adds(tree: Tree) -> bool:
    """Whether something is added to an attribute anywhere in a module."""
    return any(isinstance(n.target, ast.Attribute) for n in tree.nodes(ast.AugAssign))


def _counts(script: ScriptModel, cls: Class) -> Iterator[str]:
    """The attributes to which a class adds values from its methods' arguments, or the number of runs by a library."""
    run_by_library: bool | None = None
    for method in cls.scope.children.values():
        own = method.self_name()
        if method.kind != "function" or own is None or method.name.endswith("__init__"):
            continue
        for node in method.nodes:
            if not isinstance(node, ast.AugAssign) or not isinstance(node.op, ast.Add):
                continue
            if not isinstance(node.target, ast.Attribute) or dotted(node.target.value) != own:
                continue
            if names_in(node.value) - {own}:
                yield node.target.attr
            elif isinstance(node.value, ast.Constant):
                if run_by_library is None:
                    run_by_library = _is_run_by_library(script, cls)
                if run_by_library:
                    yield node.target.attr


def _is_run_by_library(script: ScriptModel, cls: Class) -> bool:
    """Whether an object is passed to a library, which runs it as often as it needs: `odeint(net, x, t)`."""
    interpreter = script.interpreter
    for module in script.interpreter.program.modules.values():
        for call in module.tree.nodes(ast.Call):
            if not call.args or not isinstance(call.args[0], (ast.Name, ast.Attribute)):
                continue
            scope = script.scope_of(call) if module in script.modules else module.scopes.of(call)
            contained = interpreter.evaluate(module, scope, call.args[0])
            if any(isinstance(w, Entity) and w.cls is cls for w in contained):
                called = interpreter.evaluate(module, scope, call.func)
                names = {w.name for w in called if isinstance(w, v.Imported)}
                if names and not any(n.split(".")[0] in ("torch", "builtins", "copy") for n in names):
                    return True
    return False


__all__ = ["counted_in_forward"]
