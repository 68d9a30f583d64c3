"""What a call asks a helper of the project that chooses a device: `device = get_device(gpu=not args.no_cuda)`."""

from __future__ import annotations

import ast

from accelify.analysis.scopes import Scope, handed_to
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import dotted


def choice_of(script: ScriptModel, call: ast.Call) -> tuple[Scope, ast.IfExp] | None:
    """The one choice that the function which a call runs gives back, and that function."""
    callees = script.callees(call)
    if len(callees) != 1:
        return None
    (callee,) = callees
    returned = [n.value for n in callee.nodes if isinstance(n, ast.Return)]
    value = returned[0] if len(returned) == 1 else None
    if isinstance(value, ast.Name):
        given = [
            n.value for n in callee.nodes if isinstance(n, ast.Assign) and value.id in map(dotted, n.targets)
        ]
        value = given[0] if len(given) == 1 else None
    if isinstance(value, ast.Call) and (dotted(value.func) or "").endswith("device") and value.args:
        value = value.args[0]
    return (callee, value) if isinstance(value, ast.IfExp) else None


def as_given(test: ast.expr, callee: Scope, call: ast.Call) -> ast.expr | None:
    """A test of a function by what a call hands to its parameters; None where it reads anything else.

    What asks the machine is taken for true.
    """
    if isinstance(test, ast.BoolOp):
        parts = [as_given(value, callee, call) for value in test.values]
        known = [part for part in parts if part is not None]
        return ast.BoolOp(test.op, known) if len(known) == len(parts) else None
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = as_given(test.operand, callee, call)
        return None if inner is None else ast.UnaryOp(ast.Not(), inner)
    if isinstance(test, ast.Call) and (dotted(test.func) or "").endswith("is_available"):
        return ast.Constant(True)
    if not isinstance(test, ast.Name):
        return None
    given = [value for value, name in handed_to(call, callee) if name == test.id]
    if given:
        return given[0]
    default = next((value for argument, value in callee.defaults() if argument.arg == test.id), None)
    return ast.Constant(bool(default.value)) if isinstance(default, ast.Constant) else None


__all__ = ["as_given", "choice_of"]
