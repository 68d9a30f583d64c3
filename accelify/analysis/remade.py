"""Functions that make a model of the class of one that they are handed: `other = type(model)(model.config)`."""

from __future__ import annotations

import ast

from accelify.analysis.scopes import Scope
from accelify.analysis.script import ScriptModel


def remade_parameters(script: ScriptModel, function: Scope) -> dict[str, ast.Call]:
    """The parameters by whose class a function makes something, with the call that does; a wrapper's it cannot."""
    data = script.interpreter.module_of(function).tree.data
    if function.kind != "function" or not (b"type(" in data or b".__class__" in data):
        return {}
    parameters = {a.arg for a in function.parameters()}
    found: dict[str, ast.Call] = {}
    for call in function.nodes:
        name = _class_of(call.func) if isinstance(call, ast.Call) else None
        if name in parameters and isinstance(call, ast.Call):
            found.setdefault(name, call)
    return found


def _class_of(func: ast.expr) -> str | None:
    """The name of what `type(model)` and `model.__class__` are asked of."""
    if isinstance(func, ast.Attribute) and func.attr == "__class__":
        return func.value.id if isinstance(func.value, ast.Name) else None
    if isinstance(func, ast.Call) and isinstance(func.func, ast.Name) and func.func.id == "type":
        if len(func.args) == 1 and isinstance(func.args[0], ast.Name):
            return func.args[0].id
    return None


__all__ = ["remade_parameters"]
