"""Numbers that count entries of a batch: `labeled = target.ne(-1).sum()`, `n = (y != pad).sum()`.

What they count is gathered, and they are taken again of that: N numbers of N processes would weigh one figure.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Sequence

from accelify.analysis.syntax import Tree, dotted, names_in, target_names, walk

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


def entry_counts(
    tree: Tree,
    loop: ast.For | ast.AsyncFor,
    statements: Collection[ast.stmt],
    assigned: Sequence[ast.Assign],
) -> dict[str, ast.expr]:
    """The names that count entries of a tensor of the batch and nothing else, with the expressions that they are.

    Args:
        tree: of the script.
        loop: over the batches.
        statements: of its body, those under a plain `with` as well.
        assigned: the assignments up to the place that is looked at.
    """
    found: dict[str, ast.expr] = {}
    for stmt in assigned:
        target, counted = stmt.targets[0], count_of(stmt.value)
        if counted is None or not isinstance(target, ast.Name) or len(stmt.targets) > 1:
            continue
        if stmt not in statements or sum(target.id in _given(other) for other in assigned) > 1:
            continue
        bound = {
            n.id
            for s in loop.body
            for n in walk(s)
            if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
        }
        bound |= set(target_names(loop.target))
        later = [other for other in assigned if tree.start(other) >= tree.start(stmt)]
        if any(counted in _given(other) for other in later) or counted not in bound:
            continue
        if not names_in(stmt.value) & bound - {counted}:
            found[target.id] = stmt.value
    return found


def _given(stmt: ast.Assign) -> set[str]:
    return {name for target in stmt.targets for name in target_names(target)}


def _without(node: ast.expr, methods: frozenset[str]) -> ast.expr:
    """What is before `.float()`, `.item()` and the like."""
    while isinstance(node, ast.Call) and not node.args and isinstance(node.func, ast.Attribute):
        if node.func.attr not in methods:
            break
        node = node.func.value
    return node
