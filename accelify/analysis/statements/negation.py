"""The opposite of a condition, as text."""

from __future__ import annotations

import ast


def negated(text: str, inside: bool = False) -> str:
    """The opposite of a condition, in the shortest form."""
    text = text.strip()
    tree = ast.parse(text, mode="eval").body
    if isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.Not):
        return text[3:].strip()
    if text in ("True", "False"):
        return "False" if text == "True" else "True"
    if isinstance(tree, ast.Compare) and len(tree.ops) == 1:
        opposite = {
            ast.Eq: "!=",
            ast.NotEq: "==",
            ast.Lt: ">=",
            ast.GtE: "<",
            ast.Gt: "<=",
            ast.LtE: ">",
            ast.Is: "is not",
            ast.IsNot: "is",
            ast.In: "not in",
            ast.NotIn: "in",
        }
        sign = opposite.get(type(tree.ops[0]))
        if sign is not None:
            parts = [ast.get_source_segment(text, part) for part in (tree.left, tree.comparators[0])]
            return f"{parts[0]} {sign} {parts[1]}"
    if isinstance(tree, (ast.BoolOp, ast.IfExp, ast.Compare, ast.Lambda)):
        return f"not ({text})"
    return f"not {text}"
