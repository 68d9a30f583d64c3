"""`os.environ["CUDA_VISIBLE_DEVICES"] = ...`: GPUs that a script chooses before the first use of a device.

Written out, under an `if`, or by a function that is called for it: `set_gpu(args.gpu)`.
"""

from __future__ import annotations

import ast

from accelify.analysis import values as v
from accelify.analysis.scopes import Scope, in_order
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import dotted, is_constant

_ASKING = frozenset({"device", "cuda", "to", "is_available", "device_count", "set_device"})


def hides_devices(script: ScriptModel, stmt: ast.stmt) -> bool:
    """Whether a statement does nothing but choose the GPUs that are seen, so that it can stand before all devices."""
    if isinstance(stmt, ast.Assign):
        return _is_choice(stmt) and not (hides_all(stmt) and _follows_devices(script, stmt))
    if isinstance(stmt, ast.Expr):
        callee = hiding(script, stmt.value) if isinstance(stmt.value, ast.Call) else None
        return callee is not None and not _makes_something(script, callee)
    if isinstance(stmt, ast.If):
        inside = [*stmt.body, *stmt.orelse]
        return any(hides_devices(script, s) for s in inside) and all(
            isinstance(s, ast.Pass) or _sets_variable(s) or hides_devices(script, s) for s in inside
        )
    return False


def hiding(script: ScriptModel, call: ast.Call) -> Scope | None:
    """The function that a call runs and that chooses the GPUs that are seen, if one does."""
    for callee in in_order(script.callees(call)):
        if not callee.is_method and b"VISIBLE_DEVICES" in script.interpreter.module_of(callee).tree.data:
            if any(isinstance(n, ast.Assign) and _is_choice(n) and not hides_all(n) for n in callee.nodes):
                return callee
    return None


def hides_all(stmt: ast.Assign) -> bool:
    """Whether it names no GPU: for a run on the CPU, or for a program that is started behind it."""
    return is_constant(stmt.value, "", "-1")


def _follows_devices(script: ScriptModel, stmt: ast.stmt) -> bool:
    """Whether the script has asked for its device by then, so that only programs that it starts see the choice."""
    scope, start = script.scope_of(stmt), script.tree.start(stmt)
    return any(
        isinstance(call.func, ast.Attribute) and call.func.attr in _ASKING and script.tree.start(call) < start
        for call in script.calls()
        if script.scope_of(call) is scope
    )


def _makes_something(script: ScriptModel, callee: Scope) -> bool:
    """Whether a function of the converted modules also does what needs the Accelerator."""
    if script.interpreter.module_of(callee) not in script.modules:
        return False
    kinds = (v.MODEL, v.OPTIMIZER, v.LOADER, v.DEVICE, v.BATCH)
    return callee in script.training_scopes or any(
        isinstance(n, ast.Call) and script.is_a(n, *kinds) for n in callee.nodes
    )


def _sets_variable(stmt: ast.stmt) -> bool:
    return isinstance(stmt, ast.Assign) and any(_of_environment(t) for t in stmt.targets)


def _is_choice(stmt: ast.Assign) -> bool:
    return any(
        isinstance(t, ast.Subscript)
        and _of_environment(t)
        and isinstance(t.slice, ast.Constant)
        and "VISIBLE_DEVICES" in str(t.slice.value)
        for t in stmt.targets
    )


def _of_environment(target: ast.expr) -> bool:
    return isinstance(target, ast.Subscript) and (dotted(target.value) or "").endswith("environ")


__all__ = ["hides_all", "hides_devices", "hiding"]
