"""What a `def` or a `class` evaluates where it is defined: defaults, decorators, bases, and the class body."""

from __future__ import annotations

import ast

from accelify.analysis.scopes import Scope
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import Node


def in_header(script: ScriptModel, node: Node, scope: Scope) -> bool:
    """Whether a node of a function's scope is before its body: in a default, a decorator, an annotation."""
    if scope.kind != "function" or not hasattr(node, "lineno"):
        return False
    assert isinstance(scope.node, (ast.FunctionDef, ast.AsyncFunctionDef))
    return script.tree.is_before(node, scope.node.body[0])


def evaluating_scope(script: ScriptModel, node: Node) -> Scope:
    """The function or module that runs a node: the one around a definition for what its header and class lines do."""
    scope = script.scope_of(node)
    while scope.parent is not None and (scope.kind == "class" or in_header(script, node, scope)):
        node, scope = scope.node, scope.parent
    return scope
