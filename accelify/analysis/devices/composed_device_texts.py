"""A GPU that a script names by a text which it puts together: `"cuda:" + str(n)`, `f"cuda:{n}"`."""

from __future__ import annotations

import ast
import re

# Up to the number, or with its place: not the beginning of a message.
_HEAD = re.compile(r"^cuda:(%[dis]|\{[\w:]*\})?$")


def is_numbered_gpu(node: ast.AST | None) -> bool:
    """Whether an expression is such a text, by `+`, `%`, `format` or as an f-string."""
    head: ast.AST | None = None
    if isinstance(node, ast.Call):  # the most frequent case
        if not isinstance(node.func, ast.Attribute) or node.func.attr != "format":
            return False
        head = node.func.value
    elif isinstance(node, ast.JoinedStr):
        head = node.values[0] if node.values else None
    elif isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Mod)):
        head = node.left
    if isinstance(head, ast.BinOp):
        return is_numbered_gpu(head)
    return isinstance(head, ast.Constant) and bool(_HEAD.match(str(head.value)))
