"""What the rows of a batch weigh together in a mean that gives them weights or leaves some of them out."""

from __future__ import annotations

import ast

# Where torch's functions take what their classes have as attributes.
_POSITIONS = {"weight": 2, "ignore_index": 4}
_NO_CLASS = "-100"
WEIGHS = "which weigh"
"""Stands before that expression where a reason says it."""


def weight_of_rows(node: ast.AST, name: str, weighs: str) -> str:
    """The sum of the weights as the script could write it, "" where that is not known.

    Args:
        node: the call of the loss.
        name: of its class or function, "" where it is an object.
        weighs: the arguments that weigh its rows, as `weighs_rows` names them.
    """
    if not isinstance(node, ast.Call) or any(isinstance(one, ast.Starred) for one in node.args):
        return ""
    given = {word.arg: word.value for word in node.keywords}
    target = node.args[1] if len(node.args) > 1 else given.get("target")
    names = weighs.split("=, ")
    if target is None or not set(names) <= set(_POSITIONS):
        return ""
    short, texts = name.rpartition(".")[2], {}
    for one in names:
        value = given.get(one) or next(iter(node.args[_POSITIONS[one] :]), None)
        if not short or short[:1].isupper():
            texts[one] = f"{ast.unparse(node.func)}.{one}"
        else:
            texts[one] = _NO_CLASS if value is None else ast.unparse(value)
    labels = ast.unparse(target)
    left = f"{labels} != {texts['ignore_index']}" if "ignore_index" in texts else ""
    if "weight" not in texts:
        return f"({left}).sum()"
    return f"{texts['weight']}[{f'{labels}[{left}]' if left else labels}].sum()"
