"""Statements that add to a sum, and whether it stays a mean."""

from __future__ import annotations

import ast

from accelify.analysis.syntax import names_in, text_of, walk


def addition(node: ast.AST) -> tuple[ast.expr | None, ast.expr | None]:
    """The target and value of `total += value`, `total = total + value`, `total = 0.9 * total + 0.1 * value`."""
    if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add):
        return (None, None) if _is_list(node.value) else (node.target, node.value)
    if not isinstance(node, ast.Assign) or len(node.targets) != 1 or not isinstance(node.value, ast.BinOp):
        return None, None
    target, value = node.targets[0], node.value
    if isinstance(value.op, ast.Div) and isinstance(value.left, ast.BinOp):
        # mean = (mean * i + value) / (i + 1)
        value = value.left
        if not any(
            _is_product(side) and text_of(target) in _factors(side) for side in (value.left, value.right)
        ):
            return None, None
    if not isinstance(value.op, ast.Add):
        return None, None
    text = text_of(target)
    if text_of(value.left) == text:
        return target, value.right
    sides = [value.left, value.right]
    if isinstance(target, ast.Name) and any(_is_product(side) for side in sides):
        own = [side for side in sides if target.id in names_in(side)]
        if len(own) == 1:
            return target, next(side for side in sides if side is not own[0])
    return None, None


def _is_list(value: ast.expr) -> bool:
    """Whether a list gets longer by it: `(p != y).sum(1).tolist()`, and not `(p != y).sum().tolist()`."""
    if not (
        isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr == "tolist"
    ):
        return isinstance(value, ast.List | ast.ListComp)
    of = value.func.value
    return not isinstance(of, ast.Call) or bool(of.args or of.keywords)


def keeps_mean(node: ast.AST) -> bool:
    """Whether what is carried from round to round is a mean by itself: `mean += (value - mean) / n`."""
    if isinstance(node, ast.AugAssign):
        text = text_of(node.target)
        return isinstance(node.value, ast.BinOp) and any(
            isinstance(n, ast.expr) and text_of(n) == text for n in walk(node.value)
        )
    target, value = addition(node)
    if target is None or value is None or not isinstance(node, ast.Assign):
        return False
    whole, text = node.value, text_of(target)
    return not (isinstance(whole, ast.BinOp) and text in (text_of(whole.left), text_of(whole.right)))


def _factors(node: ast.expr) -> list[str]:
    return [text_of(node.left), text_of(node.right)] if isinstance(node, ast.BinOp) else []


def _is_product(node: ast.expr) -> bool:
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult)
