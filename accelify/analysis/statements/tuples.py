"""Names of tuples that are written out: `pair = (x, y)`."""

from __future__ import annotations

import ast

from accelify.analysis.script import ScriptModel


def is_one_of_tuples(script: ScriptModel, node: ast.expr) -> bool:
    """Whether a name holds one of some tuples that its function writes out, whole, and nothing else."""
    if not isinstance(node, ast.Name):
        return False
    scope = script.scope_of(node)
    if node.id in {argument.arg for argument in scope.parameters()}:
        return False
    bound = [
        script.tree.statement(one)
        for one in scope.of_type(ast.Name)
        if one.id == node.id and not isinstance(one.ctx, ast.Load)
    ]
    return bool(bound) and all(
        isinstance(stmt, ast.Assign)
        and all(isinstance(target, ast.Name) for target in stmt.targets)
        and isinstance(stmt.value, ast.Tuple)
        and bool(stmt.value.elts)
        for stmt in bound
    )
