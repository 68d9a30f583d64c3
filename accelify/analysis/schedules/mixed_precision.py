"""The mixed precision that a script's autocast and GradScaler ask for."""

from __future__ import annotations

import ast

from accelify.analysis import knowledge as k
from accelify.analysis import values as v
from accelify.analysis.schedules.windows import from_caller
from accelify.analysis.script import ScriptModel
from accelify.analysis.statements.assignments import assigned_once
from accelify.analysis.syntax import call_argument, call_keyword, dotted, is_constant, names_in, walk

# How many names may stand for each other.
_DEEPEST = 4


def _may_be_cpu(device: ast.expr | None) -> bool:
    return device is not None and not is_constant(device, "cuda")


def scales_on_gpu_alone(script: ScriptModel) -> bool:
    """Whether no gradient is scaled on a CPU: each GradScaler is of CUDA, which torch takes where none is named."""
    scalers = script.calls_to(k.SCALER_CLASSES)
    legacy = [call for call in scalers if ".cuda.amp" in (script.qualname(call.func) or "")]
    return not any(_may_be_cpu(call_argument(call, 0, "device")) for call in scalers if call not in legacy)


def _switch(script: ScriptModel, call: ast.Call, positional: bool) -> ast.expr | None:
    """What switches a cast or a scaler on: its `enabled`, or the condition under which it is made."""
    switch = call_keyword(call, "enabled")
    if switch is None and positional and call.args:
        switch = call.args[0]
    if switch is not None:
        return switch
    for ancestor in script.tree.ancestors(call):
        if isinstance(ancestor, (ast.If, ast.IfExp)) and not isinstance(ancestor.test, ast.Constant):
            inside = ancestor.body if isinstance(ancestor.body, list) else [ancestor.body]
            within = any(call is n for part in inside for n in walk(part))
            return ancestor.test if within and script.is_uniform(ancestor.test) else None
        if isinstance(ancestor, (ast.FunctionDef, ast.Lambda)):
            return None
    return None


def _asks_for_gpu(script: ScriptModel, test: ast.expr) -> bool:
    """`device.type == "cuda"` asks what is_available() asks, as does `scaler is not None`."""
    return any(
        script.is_a(node, v.DEVICE) or script.is_a(node, v.SCALER)
        if isinstance(node, ast.Name)
        else isinstance(node, ast.Call) and script.qualname(node.func) in k.AVAILABILITY_CALLS
        for node in walk(test)
    )


def _conditions(script: ScriptModel, test: ast.expr, depth: int = 0) -> list[ast.expr]:
    """What has to be true all together."""
    made = assigned_once(script.scope_of(test), test)
    parts: list[ast.expr] = []
    if isinstance(made, ast.BoolOp) and isinstance(made.op, ast.And):
        parts = made.values
    elif isinstance(made, ast.IfExp) and is_constant(made.orelse, False):
        parts = [made.test, made.body]
    if parts and depth < _DEEPEST:
        return [one for part in parts for one in _conditions(script, part, depth + 1)]
    return [made if made is not None and _asks_for_gpu(script, made) else test]


def mixed_precision(script: ScriptModel) -> tuple[str, frozenset[str] | None] | None:
    """The `mixed_precision` argument that autocast and GradScaler ask for, as source, with the names it reads; None for
    these where what decides has no one name."""
    autocasts = script.calls_to(k.AUTOCAST_CLASSES)
    scalers = script.calls_to(k.SCALER_CLASSES)
    if (not autocasts and not scalers) or not script.understands_precision:
        return None
    kind, cpu_kind, enabled, names = "fp16", "no", "", frozenset[str]()
    for call in [*autocasts, *scalers]:
        legacy = ".cuda.amp" in (script.qualname(call.func) or "")
        dtype = call_keyword(call, "dtype")
        word = (dotted(dtype) or "").rpartition(".")[2] if dtype is not None else ""
        if word == "bfloat16":
            kind = "bf16"
        if call in autocasts and not legacy and _may_be_cpu(call_argument(call, 0, "device_type")):
            # torch's own choice there is bfloat16.
            cpu_kind = "fp16" if word in ("float16", "half") else "bf16"
        switch = _switch(script, call, positional=legacy and call in autocasts)
        tests = _conditions(script, switch) if switch is not None else []
        asked = [test for test in tests if not isinstance(test, ast.Constant)]
        further = [test for test in asked if not _asks_for_gpu(script, test)]
        # That gradients are scaled on a GPU alone says nothing of what is cast.
        if len(further) < len(asked) and call in autocasts:
            cpu_kind = "no"
        if enabled or not further:
            continue
        given = [from_caller(script, test) for test in further]
        known = [one for one in given if one is not None]
        if len(known) < len(given) or not all(map(script.is_uniform, further)):
            return kind, None
        texts = [(one, script.tree.segment(one)) for one in known]
        enabled = " and ".join(f"({t})" if isinstance(one, ast.BoolOp | ast.IfExp) else t for one, t in texts)
        names = frozenset(name for one in known for name in names_in(one))
    alike = kind == cpu_kind
    value = f'"{kind}"' if alike else f'"{kind}" if torch.cuda.is_available() else "{cpu_kind}"'
    if enabled:
        value = f'{value} if {enabled} else "no"' if alike else f'({value}) if {enabled} else "no"'
        if cpu_kind == "no":
            value = f'"{kind}" if {enabled} and torch.cuda.is_available() else "no"'
    return value, names
