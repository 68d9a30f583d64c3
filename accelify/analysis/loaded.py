"""What a script has read from a file, followed through its names to where it is used."""

from __future__ import annotations

import ast
from collections.abc import Collection

from accelify.analysis.script import ScriptModel
from accelify.analysis.steps import sources
from accelify.analysis.syntax import dotted

# How many names lie between a checkpoint and what is read of it at most.
_FAR = 4


def comes_from(script: ScriptModel, node: ast.expr, calls: Collection[ast.expr], far: int = _FAR) -> bool:
    """Whether an expression is what one of some calls gives back, or a part of it: an entry or an attribute.

    Args:
        script: its model.
        node: the expression.
        calls: `torch.load(...)` and the like.
        far: how many assignments and parameters it is followed through.
    """
    while isinstance(node, (ast.Subscript, ast.Call, ast.Attribute)) and node not in calls:
        if isinstance(node, ast.Call):
            if not isinstance(node.func, ast.Attribute) or node.func.attr not in ("get", "pop"):
                return False
            node = node.func
        elif isinstance(node, ast.Attribute) and script.scope_of(node).self_name() == dotted(node.value):
            break
        node = node.value
    if node in calls:
        return True
    if far == 0 or not isinstance(node, (ast.Name, ast.Attribute)):
        return False
    return any(comes_from(script, source, calls, far - 1) for source in sources(script, node))
