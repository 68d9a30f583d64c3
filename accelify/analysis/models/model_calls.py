"""Where a loop that calls no model itself has it run: by another method of it, or in a function."""

from __future__ import annotations

import ast

from accelify.analysis import knowledge as k
from accelify.analysis import values as v
from accelify.analysis.scopes import Scope
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import Node
from accelify.analysis.values import Entity

_DEEPEST = 4


def run_elsewhere(script: ScriptModel, nodes: list[Node]) -> str | None:
    """Why the outputs of a model are not seen among some nodes, None where nothing there may run one."""
    calls = [n for n in nodes if isinstance(n, ast.Call)]
    for call in calls:
        func = call.func
        own = (
            isinstance(func, ast.Attribute) and func.attr not in k.MODULE_API and (call.args or call.keywords)
        )
        if isinstance(func, ast.Attribute) and own and script.callees(call) and script.models_of(func.value):
            return f"the model's method `{func.attr}` is called, and not the model itself"
    for call in calls:
        if any(script.models_of(a) for a in call.args) or any(
            _runs_model(script, s) for s in script.callees(call)
        ):
            func = call.func
            name = func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")
            return (
                f"the model is called inside `{name}`"
                if name
                else "the model is called inside another function"
            )
    if any(script.callees(call) for call in calls):
        return "no call of a model is seen, neither in it nor in the functions that it calls"
    return None


def _runs_model(script: ScriptModel, scope: Scope, far: int = 0) -> bool:
    """Whether a function calls a model, itself or through what it calls."""
    interpreter = script.interpreter
    module = interpreter.module_of(scope)
    for call in scope.calls:
        contained = interpreter.evaluate(module, scope, call.func)
        if any(isinstance(w, Entity) and w.kind == v.MODEL for w in contained):
            return True
        if far < _DEEPEST and any(_runs_model(script, s, far + 1) for s in interpreter.calls.get(call, ())):
            return True
    return False
