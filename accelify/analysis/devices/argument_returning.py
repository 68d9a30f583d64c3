"""Functions that return their argument, at most moved to a device: `to_var(x)`, `cuda(x)`."""

from __future__ import annotations

import ast

from accelify.analysis import knowledge as k
from accelify.analysis.scopes import Scope
from accelify.analysis.syntax import dotted, stores_in

_HANDING_BACK = k.SELF_RETURNING | {"cuda", "to", "cpu"}


def handed_back(function: Scope) -> str | None:
    """The one parameter that every `return` of a function returns, through moves and `Variable` at most."""
    if not isinstance(function.node, ast.FunctionDef):
        return None
    found: set[str | None] = set()
    if function.of_type(ast.Yield, ast.YieldFrom):
        return None
    for node in function.of_type(ast.Return):
        found.add(_moved(node.value, function.self_name()))
    name = found.pop() if len(found) == 1 else None
    if name is None or not function.takes(name):
        return None
    for node in function.of_type(ast.Assign, ast.AugAssign, ast.For, ast.With):
        if name in stores_in(node) and not (
            isinstance(node, ast.Assign) and _moved(node.value, None) == name
        ):
            return None
    return name


def is_super(node: ast.AST) -> bool:
    """Whether an expression is `super()`, in its short or its long form."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super"


def _moved(node: ast.expr | None, own: str | None = None) -> str | None:
    """The name in `x.cuda()`, `Variable(x)`, `x.to(device) if flag else x`; `own` for `super().to(device)`."""
    if isinstance(node, ast.IfExp):
        one = _moved(node.body, own)
        return one if one == _moved(node.orelse, own) else None
    while isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute) and node.func.attr in _HANDING_BACK:
            if is_super(node.func.value):
                return own
            node = node.func.value
        elif (dotted(node.func) or "").rsplit(".", 1)[-1] == "Variable" and node.args:
            node = node.args[0]
        else:
            return None
    return node.id if isinstance(node, ast.Name) else None
