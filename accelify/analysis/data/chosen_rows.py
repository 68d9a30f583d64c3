"""Rows that an evaluation loop chooses by what is in them: each process has another number of them.

mask = y != ignored
x, y = x[mask], y[mask]
output = model(x)           not gathered: the shares differ in length
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from accelify.analysis.syntax import names_in, target_names, walk

# Functions and methods that give a truth for each row, or the numbers of those rows that have it.
_MASKING = frozenset(
    "nonzero flatnonzero argwhere isin in1d logical_and logical_or logical_not logical_xor bool isnan isfinite eq ne "
    "gt lt ge le".split()
)
# Those that leave a mask what it is.
_SHAPING = frozenset(
    "flatten squeeze view reshape cpu to cuda numpy detach long tensor as_tensor LongTensor array asarray".split()
)
_CHOOSING = frozenset({"masked_select", "compress", "boolean_mask"})


def chosen_rows(statements: Sequence[ast.stmt], last: int) -> str | None:
    """A name, or an expression, of rows that are chosen of a batch and go into the model, or come from it.

    Args:
        statements: of the loop's body.
        last: the index of the one with the last call of the model.
    """
    masks, chosen = set[str](), set[str]()
    for stmt in statements[:last]:
        for one in walk(stmt):
            if isinstance(one, ast.Assign):
                made = {name for target in one.targets for name in target_names(target)}
                by_row = _chooses(one.value, masks) or bool(names_in(one.value) & chosen)
                is_mask = _is_mask(one.value, masks)
                chosen = chosen | made if by_row else chosen - made
                masks = masks | made if is_mask else masks - made
    used = {n.id for s in statements[last:] for n in walk(s) if isinstance(n, ast.Name)}
    if found := sorted(chosen & used & names_in(statements[last])):
        return found[0]
    value = getattr(statements[last], "value", None)
    return ast.unparse(value) if isinstance(value, ast.expr) and _chooses(value, masks) else None


def _chooses(value: ast.expr, masks: set[str]) -> bool:
    return any(
        (isinstance(one, ast.Subscript) and _is_mask(one.slice, masks))
        or (isinstance(one, ast.Call) and _word(one) in _CHOOSING)
        for one in walk(value)
    )


def _is_mask(node: ast.expr, masks: set[str]) -> bool:
    if isinstance(node, ast.Tuple):
        return bool(node.elts) and _is_mask(node.elts[0], masks)
    if isinstance(node, ast.Name):
        return node.id in masks
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.op, ast.Invert) and _is_mask(node.operand, masks)
    if isinstance(node, ast.BinOp):
        both = isinstance(node.op, (ast.BitAnd, ast.BitOr, ast.BitXor))
        return both and _is_mask(node.left, masks) and _is_mask(node.right, masks)
    if isinstance(node, ast.Compare):
        return not any(isinstance(op, (ast.In, ast.NotIn, ast.Is, ast.IsNot)) for op in node.ops)
    if isinstance(node, ast.ListComp):
        return any(one.ifs for one in node.generators)
    if isinstance(node, ast.Subscript):  # `torch.where(y > 0)[0]`
        return _is_mask(node.value, masks)
    if not isinstance(node, ast.Call):
        return False
    if _word(node) == "where":
        return len(node.args) == 1
    if _word(node) in _MASKING:
        return True
    shaped = [*node.args[:1], *([node.func.value] if isinstance(node.func, ast.Attribute) else [])]
    return _word(node) in _SHAPING and any(_is_mask(one, masks) for one in shaped)


def _word(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
