"""Places of nodes inside f-strings, which the parser of Python 3.11 can get wrong."""

from __future__ import annotations

import ast
from collections.abc import Sequence


def has_its_place(node: ast.AST, line_starts: Sequence[int], data: bytes) -> bool:
    """Whether the text at a node's recorded place is the node.

    Args:
        node: any node; those that are no expressions by themselves have no place to go by.
        line_starts: the bytes at which lines begin.
        data: the script.
    """
    if not isinstance(node, ast.expr) or node.end_lineno is None or node.end_lineno > len(line_starts):
        return False
    start = line_starts[node.lineno - 1] + node.col_offset
    end = line_starts[node.end_lineno - 1] + (node.end_col_offset or 0)
    try:
        there = ast.parse(data[start:end].strip(), mode="eval").body
    except (SyntaxError, ValueError):
        return False
    return ast.unparse(there) == ast.unparse(node)
