"""What a loss is divided by, as its function writes it: an operator, a method, or a product with the inverse."""

from __future__ import annotations

import ast
from collections.abc import Iterator

_DIVIDES = frozenset("div div_ divide divide_ true_divide true_divide_".split())
_MULTIPLIES = frozenset("mul mul_ multiply multiply_".split())


def divisors(around: ast.AST, made: ast.expr) -> Iterator[str]:
    """The texts of what an expression divides by.

    Args:
        around: the function, in which a name may stand for an inverse.
        made: the expression.
    """
    if isinstance(made, ast.BinOp) and isinstance(made.op, ast.Div):
        yield ast.unparse(made.right)
        yield from divisors(around, made.left)
    elif isinstance(made, ast.BinOp) and isinstance(made.op, ast.Mult):
        for factor in (made.left, made.right):
            yield from _inverse_of(around, factor)
            yield from divisors(around, factor)
    elif isinstance(made, ast.Call) and isinstance(made.func, ast.Attribute):
        # `torch.div(loss, steps)` as `loss.div(steps)`.
        value = made.func.value
        taken = made.args if isinstance(value, ast.Name) and value.id == "torch" else [value, *made.args]
        if made.func.attr in _DIVIDES and len(taken) == 2:
            yield ast.unparse(taken[1])
        elif made.func.attr in _MULTIPLIES and len(taken) == 2:
            yield from _inverse_of(around, taken[1])
        for one in taken[:1]:
            yield from divisors(around, one)


def _inverse_of(around: ast.AST, factor: ast.expr) -> Iterator[str]:
    found = made_of(around, factor.id, factor.lineno) if isinstance(factor, ast.Name) else [factor]
    for one in found:
        if (
            isinstance(one, ast.BinOp)
            and isinstance(one.op, ast.Div)
            and getattr(one.left, "value", None) == 1
        ):
            yield ast.unparse(one.right)


def made_of(around: ast.AST, name: str, line: int) -> list[ast.expr]:
    """What a name is made of up to a line in a function: from its last value that is not made of itself on."""
    found: list[ast.expr] = []
    for stmt in sorted(ast.walk(around), key=lambda one: getattr(one, "lineno", 0)):
        if getattr(stmt, "lineno", line) >= line:
            continue
        if isinstance(stmt, ast.AugAssign) and isinstance(stmt.target, ast.Name) and stmt.target.id == name:
            found.append(ast.BinOp(stmt.target, stmt.op, stmt.value))
        elif isinstance(stmt, ast.Expr) and _changes(stmt.value, name):
            found.append(stmt.value)
        elif isinstance(stmt, ast.Assign) and any(
            isinstance(part, ast.Name) and part.id == name
            for target in stmt.targets
            for part in ast.walk(target)
        ):
            again = any(isinstance(part, ast.Name) and part.id == name for part in ast.walk(stmt.value))
            found = [*(found if again else []), stmt.value]
    return found


def _changes(call: ast.expr, name: str) -> bool:
    """Whether it is a method that changes what a name stands for: `loss.div_(steps)`."""
    func = call.func if isinstance(call, ast.Call) else None
    return (
        isinstance(func, ast.Attribute) and func.attr.endswith("_") and getattr(func.value, "id", "") == name
    )
