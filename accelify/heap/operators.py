"""What Python's operators do with constants, and the methods of objects that they call."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any

COMPARED: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.In: lambda left, right: left in right,
    ast.NotIn: lambda left, right: left not in right,
}
_WORDS: dict[type[ast.operator], str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "truediv",
    ast.FloorDiv: "floordiv",
    ast.Mod: "mod",
    ast.Pow: "pow",
    ast.MatMult: "matmul",
    ast.BitAnd: "and",
    ast.BitOr: "or",
}
METHODS = {op: f"__{word}__" for op, word in _WORDS.items()}
REFLECTED = {op: f"__r{word}__" for op, word in _WORDS.items()}
IN_PLACE = {op: f"__i{word}__" for op, word in _WORDS.items()}
NUMBERS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
}


def as_load(target: ast.expr) -> ast.expr:
    """An assignment's target as the expression that reads it."""
    if isinstance(target, ast.Name):
        return ast.Name(target.id, ast.Load())
    if isinstance(target, ast.Attribute):
        return ast.Attribute(target.value, target.attr, ast.Load())
    if isinstance(target, ast.Subscript):
        return ast.Subscript(target.value, target.slice, ast.Load())
    return target


def is_under_text(node: ast.expr) -> bool:
    """Whether it is what a table has under a text that is written out: `config["train"]`."""
    return isinstance(node, ast.Subscript) and isinstance(getattr(node.slice, "value", None), str)
