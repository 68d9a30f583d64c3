"""Functions of other modules that make a model for their callers, on the device that they get.

def get_model(config, device):
    model = Net(config)
    return model.to(device)         the Accelerator's, where this script calls it; another one's for its evaluation
"""

from __future__ import annotations

import ast

from accelify.analysis.scopes import handed_to
from accelify.analysis.script import ScriptModel


def is_device_parameter(script: ScriptModel, device: ast.expr) -> bool:
    """Whether a device is a parameter of a function of another module, which all calls that are seen pass."""
    if not isinstance(device, ast.Name) or len(script.modules) == 1:
        return False
    scope = script.scope_of(device)
    if scope.kind != "function" or scope.is_method or script.interpreter.module_of(scope) is script.module:
        return False
    if device.id not in {a.arg for a in scope.parameters()} or any(
        isinstance(n, ast.Name) and n.id == device.id and isinstance(n.ctx, ast.Store) for n in scope.nodes
    ):
        return False
    calls = script.interpreter.callers.get(scope, [])
    return bool(calls) and all(
        any(name == device.id and not isinstance(a, ast.Constant) for a, name in handed_to(call, scope))
        and not any(isinstance(a, ast.Starred) for a in call.args)
        for _, call in calls
    )
