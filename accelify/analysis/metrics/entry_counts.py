"""Numbers that count entries of a batch: `labeled = target.ne(-1).sum()`, `n = (y != pad).sum()`.

They are numbers of the local batch, which do not belong beside what is gathered.
"""

from __future__ import annotations

import ast

from accelify.analysis.syntax import dotted, names_in

# What makes a number of a comparison's entries, or of their sum.
_TO_NUMBER = frozenset("double float int item long".split())
_COMPARING = frozenset("eq ge gt le lt ne".split())


def count_of(value: ast.expr) -> str | None:
    """The tensor's name, where an expression counts entries of it by comparing them with what is no tensor's name."""
    call = _without(value, _TO_NUMBER)
    if not isinstance(call, ast.Call) or call.keywords or not isinstance(call.func, ast.Attribute):
        return None
    if dotted(call.func) == "torch.sum":
        summed = call.args[0] if len(call.args) == 1 else None
    else:
        summed = call.func.value if call.func.attr == "sum" and not call.args else None
    compared = _without(summed, _TO_NUMBER) if summed is not None else None
    if isinstance(compared, ast.Compare) and len(compared.ops) == 1:
        one, other = compared.left, compared.comparators[0]
    elif (
        isinstance(compared, ast.Call)
        and isinstance(compared.func, ast.Attribute)
        and compared.func.attr in _COMPARING
        and len(compared.args) == 1
        and not compared.keywords
    ):
        one, other = compared.func.value, compared.args[0]
    else:
        return None
    one = _without(one, frozenset({"detach"}))
    one = one.value if isinstance(one, ast.Attribute) and one.attr == "data" else one
    bound = other.operand if isinstance(other, ast.UnaryOp) else other
    if not isinstance(bound, ast.Constant) and dotted(bound) is None:
        return None
    return one.id if isinstance(one, ast.Name) and one.id not in names_in(other) else None


def _without(node: ast.expr, methods: frozenset[str]) -> ast.expr:
    """What is before `.float()`, `.item()` and the like."""
    while isinstance(node, ast.Call) and not node.args and isinstance(node.func, ast.Attribute):
        if node.func.attr not in methods:
            break
        node = node.func.value
    return node
