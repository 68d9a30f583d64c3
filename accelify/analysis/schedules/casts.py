"""Casts that the Accelerator's mixed precision would not repeat: those around some of a script's forwards only.

The Accelerator runs every forward of a prepared model in its precision, and scales the loss where that is fp16. A
script that evaluates outside of its `autocast`, whose model casts parts of its forward only, or that trains in fp16
without a GradScaler, has other figures then, on one process already: the script's casts stay.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accelify.analysis import knowledge as k
from accelify.analysis import values as v
from accelify.analysis.schedules.windows import from_caller
from accelify.analysis.scopes import Scope
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import Node, call_keyword, dotted, is_constant, walk
from accelify.analysis.trained import is_in_model
from accelify.analysis.values import Imported


def why_casts_stay(script: ScriptModel) -> str:
    """What makes a script's casts differ from the Accelerator's, which apply to every forward of a prepared model.

    Empty where nothing does.
    """
    if _scales_from_elsewhere(script):
        return "its GradScaler is made in another module"
    autocasts = [c for c in script.calls() if script.qualname(c.func) in k.AUTOCAST_CLASSES]
    if not script.understands_precision:
        return ""
    if not autocasts:
        if not any(script.qualname(c.func) in k.SCALER_CLASSES for c in script.calls()):
            return ""
        casts = list(_casts_of_modules(script))
        if any(is_in_model(script, scope) for scope in casts):
            return "a model casts a part of its forward by itself"
        # What a scaler alone scales is computed in full precision.
        return "" if casts else "nothing is computed in half precision"
    for call in autocasts:
        if is_constant(call_keyword(call, "enabled"), False):
            return f"a part is computed in full precision (line {script.tree.line_of(call)})"
        if _switches_by_itself(script, call):
            return f"a condition decides while it runs (line {script.tree.line_of(call)})"
    scaled = any(script.qualname(c.func) in k.SCALER_CLASSES for c in script.calls())
    halves = [c for c in autocasts if not (dotted(call_keyword(c, "dtype")) or "").endswith("bfloat16")]
    if halves and not scaled:
        return "it trains in half precision without a GradScaler"
    forwards = [c for c in script.calls() if script.models_run(c) & script.trained_models]
    outside = [call for call in forwards if _is_outside(script, call, set())]
    return f"a model is run outside of autocast (line {script.tree.line_of(outside[0])})" if outside else ""


def _scales_from_elsewhere(script: ScriptModel) -> bool:
    """Whether a script scales its loss, and neither its scaler nor a cast is written out in it.

    Nothing says then when the Accelerator should scale, in whose place.
    """
    calls = script.calls()
    if any(script.qualname(c.func) in k.SCALER_CLASSES | k.AUTOCAST_CLASSES for c in calls):
        return False
    return any(is_scaled(script, call) for call in calls)


def is_scaled(script: ScriptModel, node: ast.expr) -> bool:
    """Whether an expression is what a GradScaler scales: `scaler.scale(loss)`."""
    func = node.func if isinstance(node, ast.Call) else None
    return isinstance(func, ast.Attribute) and func.attr == "scale" and script.is_a(func.value, v.SCALER)


def _switches_by_itself(script: ScriptModel, autocast: ast.Call) -> bool:
    """Whether a condition switches a cast on that the Accelerator's constructor cannot repeat."""
    switch = call_keyword(autocast, "enabled")
    if switch is None or isinstance(switch, ast.Constant):
        return False
    for part in walk(switch):
        if isinstance(part, ast.Name) and (script.is_a(part, v.DEVICE) or script.is_a(part, v.SCALER)):
            return False
        if isinstance(part, ast.Call) and script.qualname(part.func) in k.AVAILABILITY_CALLS:
            return False
    return not script.is_uniform(switch) or from_caller(script, switch) is None


def _casts_of_modules(script: ScriptModel) -> Iterator[Scope]:
    """Where other modules cast parts of what they compute."""
    for module in script.program.modules.values():
        if module in script.modules or not module.tree.mentions(b"autocast"):
            continue
        for call in module.tree.nodes(ast.Call):
            if (dotted(call.func) or "").endswith("autocast"):
                scope = module.scopes.of(call)
                contained = script.interpreter.evaluate(module, scope, call.func)
                if any(isinstance(h, Imported) and h.name in k.AUTOCAST_CLASSES for h in contained):
                    yield scope


def _is_outside(script: ScriptModel, node: Node, seen: set[Scope]) -> bool:
    """Whether a place is reached without a cast around it, in its function or at a call of it that is seen."""
    if _is_cast(script, node):
        return False
    scope = script.scope_of(node)
    if scope.kind != "function":
        return True
    if scope in seen or is_in_model(script, scope):
        return False
    callers = script.callers(scope)
    if not callers and not script.called_from_elsewhere(scope):
        return True  # what a library calls, as it is handed on: `study.optimize(objective)`
    return any(_is_outside(script, call, seen | {scope}) for call in callers)


def _is_cast(script: ScriptModel, node: Node) -> bool:
    """Whether a `with autocast()` of the same function is around a place."""
    for ancestor in script.tree.ancestors(node):
        if isinstance(ancestor, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            return False
        if isinstance(ancestor, (ast.With, ast.AsyncWith)) and any(
            _opens_cast(script, item.context_expr) for item in ancestor.items
        ):
            return True
    return False


def _opens_cast(script: ScriptModel, region: ast.expr) -> bool:
    return any(
        isinstance(part, ast.expr)
        and (
            script.is_a(part, v.AUTOCAST)
            or (isinstance(part, ast.Call) and script.qualname(part.func) in k.AUTOCAST_CLASSES)
        )
        for part in walk(region)
    )
