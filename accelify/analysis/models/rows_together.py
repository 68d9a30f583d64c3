"""Outputs with several rows a sample: crops of a picture.

b, crops, c, h, w = x.size()
output = model(x.view(-1, c, h, w))                 # b * crops rows
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from accelify.analysis.syntax import is_constant, names_in, target_names, text_of, walk

_SHAPING = frozenset({"view", "reshape"})


def takes_rows_together(call: ast.Call, before: Sequence[ast.stmt]) -> bool:
    """Whether the model's input has the rows of all samples in its first dimension: `x.view(-1, c, h, w)`.

    Args:
        call: of the model.
        before: the statements of the loop up to it.
    """
    for given in call.args:
        names = names_in(given)
        values = [given]
        values += [
            s.value
            for s in before
            if isinstance(s, ast.Assign) and names & {n for t in s.targets for n in target_names(t)}
        ]
        if any(_is_flattened(node) for value in values for node in walk(value)):
            return True
    return False


def _is_flattened(node: ast.AST) -> bool:
    """`x.view(-1, c, h, w)` and `x.flatten(0, 1)`."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or len(node.args) < 2:
        return False
    if node.func.attr in _SHAPING:
        return isinstance(node.args[0], ast.UnaryOp) and text_of(node.args[0]) == "-1"
    return node.func.attr == "flatten" and is_constant(node.args[0], 0)
