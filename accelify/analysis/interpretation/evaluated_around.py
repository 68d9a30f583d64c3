"""Calls that the interpreter evaluates with the node around them, and that need not be run by themselves."""

from __future__ import annotations

import ast

from accelify.analysis.devices.argument_returning import is_super
from accelify.analysis.syntax import Node, Tree

# Whose parts are all evaluated, wherever they are themselves.
_WHOLE = frozenset({ast.Tuple, ast.List, ast.BinOp, ast.Starred, ast.keyword})


def is_evaluated_around(tree: Tree, call: Node) -> bool:
    """Whether a call is part of another one, or is the value of a statement that the interpreter runs.

    Args:
        tree: of the module.
        call: of it.
    """
    inner: Node = call
    around = tree.parent(call)
    while (kind := type(around)) in _WHOLE or (kind is ast.Attribute and not is_super(inner)):
        assert around is not None
        inner, around = around, tree.parent(around)
    if isinstance(around, ast.Call):
        # `getattr(module, name)(x)` is handled separately.
        return inner is not around.func or type(inner) is ast.Attribute
    if isinstance(around, (ast.For, ast.AsyncFor, ast.comprehension)):
        return inner is around.iter
    if isinstance(around, (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.NamedExpr)):
        return inner is around.value
    return isinstance(around, (ast.Return, ast.Yield, ast.YieldFrom))
