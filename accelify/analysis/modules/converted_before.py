"""How to recognise a script or module that was converted before: it imports the runtime, or gets an Accelerator."""

from __future__ import annotations

import ast

from accelify.analysis.planning.anchors import NAME
from accelify.analysis.program import Module
from accelify.analysis.scopes import in_order
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import Tree, dotted


def imports_package(tree: Tree, package: str) -> bool:
    """Whether a module imports a package or something of it."""
    return any(
        (name or "").split(".")[0] == package
        for node in tree.nodes(ast.Import, ast.ImportFrom)
        for name in ([a.name for a in node.names] if isinstance(node, ast.Import) else [node.module])
    )


def is_handed_an_accelerator(tree: Tree) -> bool:
    """Whether a module's training loop works with an Accelerator that another module makes."""
    calls = [call for call in tree.nodes(ast.Call) if isinstance(call.func, (ast.Name, ast.Attribute))]
    if any((dotted(call.func) or "").rsplit(".", 1)[-1] == "Accelerator" for call in calls):
        return False
    return any((dotted(call.func) or "").endswith("accelerator.backward") for call in calls)


def calls_without(script: ScriptModel) -> Module | None:
    """The module of a function that takes the Accelerator and is called without one; None where there is none."""
    for call in script.calls():
        given = [*call.args, *[kw.value for kw in call.keywords]]
        if any(isinstance(a, ast.Starred) or (dotted(a) or "").endswith(NAME) for a in given):
            continue
        for callee in in_order(script.callees(call)):
            if callee.takes(NAME):
                return script.interpreter.module_of(callee)
    return None
