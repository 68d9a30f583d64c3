"""Whether a script reads a value under all of its options: what it reads so is there in every run of it."""

from __future__ import annotations

import ast

from accelify.analysis.holders import Holder
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import dotted

# A call of a call of a call: beyond this, conditions are not followed.
_FARTHEST_CALL = 3


def on_every_path(script: ScriptModel, node: ast.AST, far: int = 0) -> bool:
    """Whether a node runs under all conditions, in a function with one of its calls."""
    for ancestor in script.tree.ancestors(node):
        if isinstance(ancestor, (ast.FunctionDef, ast.AsyncFunctionDef)):
            scope = next((s for s in script.functions() if s.node is ancestor), None)
            calls = script.callers(scope) if scope is not None and far < _FARTHEST_CALL else []
            return not calls or any(on_every_path(script, call, far + 1) for call in calls)
        if isinstance(ancestor, (ast.If, ast.IfExp)) and ancestor is not script.main_guard:
            return False
    return True


def reads_of_attribute(holder: Holder) -> list[ast.AST]:
    """Where the methods of a class read an attribute of its objects."""
    methods = holder.cls.scope.children.values() if holder.cls is not None else ()
    return [
        node
        for method in methods
        for node in method.of_type(ast.Attribute)
        if isinstance(node.ctx, ast.Load)
        and node.attr == holder.name
        and dotted(node.value) == method.self_name()
    ]
