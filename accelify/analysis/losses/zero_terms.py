"""Terms of a loss that are nothing: `prediction.sum() * 0` keeps the graph of an empty batch, whatever sums it up."""

from __future__ import annotations

import ast

from accelify.analysis.syntax import dotted

_ZEROS = frozenset({"zeros", "zeros_like", "new_zeros"})
_REDUCING = frozenset({"sum", "mean"})


def is_nothing(node: ast.expr) -> bool:
    """Whether an expression is zero: multiplied by a literal 0, or the sum or the mean of what is."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        return any(_is_zero(side) or is_nothing(side) for side in (node.left, node.right))
    if not isinstance(node, ast.Call):
        return False
    last = str(dotted(node.func) or getattr(node.func, "attr", "")).rpartition(".")[2]
    if last in ("mul", "multiply") and any(_is_zero(arg) for arg in node.args):
        return True
    if last in _ZEROS:
        return True
    reduced = [*node.args[:1], getattr(node.func, "value", None)] if last in _REDUCING else []
    return any(isinstance(one, ast.expr) and is_nothing(one) for one in reduced)


def _is_zero(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, (int, float)) and node.value == 0
