"""Functions that move a model argument: `torch.save(model.cpu().state_dict(), path)`, `model.to(device)`.

Where one process alone runs them, its weights are others for DistributedDataParallel, which hooks on those that it saw.
"""

from __future__ import annotations

import ast

from accelify.analysis.scopes import Scope, handed_to, in_order
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import dotted, walk

_MOVING = frozenset({"cpu", "half", "double", "bfloat16"})
# The function may pass the model on to another one.
_FARTHEST = 2


def moved_elsewhere(script: ScriptModel, call: ast.Call, model: ast.expr) -> tuple[Scope, ast.Call] | None:
    """Where the functions that a call runs move a model that it passes; None where none of them does.

    Args:
        script: its model.
        call: the call.
        model: one of its arguments.
    """
    for callee in in_order(script.callees(call)):
        for argument, name in handed_to(call, callee):
            found = _moves(script, callee, name, _FARTHEST) if argument is model else None
            if found is not None:
                return found
    return None


def _moves(script: ScriptModel, function: Scope, name: str, far: int) -> tuple[Scope, ast.Call] | None:
    for call in function.calls:
        if isinstance(call.func, ast.Attribute) and dotted(call.func.value) == name and _leaves(call):
            return function, call
        for inner in in_order(script.interpreter.calls.get(call, set())) if far else ():
            for argument, taken in handed_to(call, inner):
                found = _moves(script, inner, taken, far - 1) if dotted(argument) == name else None
                if found is not None:
                    return found
    return None


def _leaves(call: ast.Call) -> bool:
    """Whether a method of a model takes it to the CPU or to another type."""
    method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    if method == "to":
        return any(isinstance(n, ast.Constant) and n.value == "cpu" for a in call.args for n in walk(a))
    return method in _MOVING and not call.args
