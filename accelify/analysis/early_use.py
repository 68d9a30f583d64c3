"""Models that something is done with before prepare puts them on the device: they are run, copied, or looked into."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from accelify.analysis import values as v
from accelify.analysis.scopes import Scope
from accelify.analysis.script import ScriptModel, is_in_model
from accelify.analysis.sites import PrepareSite
from accelify.analysis.syntax import dotted, walk

# Library classes that keep a copy of the model they are given.
_COPYING_CLASSES = frozenset({"AveragedModel", "ModelEma", "ModelEmaV2", "ModelEmaV3", "EMA", "ModelEMA"})

# Library functions that run the model they are given.
_RUNNING_FUNCTIONS = frozenset(
    "profile summary add_graph get_model_complexity_info FlopCountAnalysis export trace make_dot".split()
)

_KNOWN = frozenset({"torch", "builtins"})


def is_needed_before_prepare(script: ScriptModel, sites: Iterable[PrepareSite], model: v.Thing) -> bool:
    """Whether the model has to be on the device before prepare puts it there: it is run, or copied, by then."""
    for site in sites:
        if not any(model in item.things for item in site.items):
            continue
        for call in script.calls():
            if script.scope_of(call) is not site.scope:
                continue
            if script.tree.start(call) < script.tree.end(site.after) and _runs_or_copies(script, call, model):
                return True
    return False


def _runs_or_copies(script: ScriptModel, call: ast.Call, model: v.Thing) -> bool:
    if _is_among(script, model, script.models_run(call)) or _runs_within(script, call, model):
        return True
    if isinstance(call.func, ast.Attribute) and model in script.models_of(call.func.value):
        if any(_runs_parts(script, callee) for callee in script.callees(call)):
            return True
    given = [*call.args, *[kw.value for kw in call.keywords]]
    if not any(_is_among(script, model, script.models_of(argument)) for argument in given):
        return False
    name = script.qualname(call.func) or ""
    if name == "copy.deepcopy":
        parent = script.tree.parent(call)  # deepcopy(model).to(device) places the copy itself
        return not (isinstance(parent, ast.Attribute) and parent.attr in ("to", "cuda"))
    if (name or dotted(call.func) or "").rsplit(".", 1)[-1] in _COPYING_CLASSES | _RUNNING_FUNCTIONS:
        return True
    if name and not script.callees(call) and name.split(".")[0] not in _KNOWN:
        # `score(model, loader)` of a module that cannot be read
        if any(script.is_a(argument, v.LOADER, v.DATASET, v.BATCH, v.TENSOR) for argument in given):
            return True
    return any(
        (isinstance(inner, ast.Call) and (dotted(inner.func) or "").endswith("deepcopy"))
        # `{n: p.data.clone() for n, p in model.named_parameters()}`
        or (isinstance(inner, ast.Attribute) and inner.attr == "clone")
        for callee in script.callees(call)
        for inner in walk(callee.node)
    )


def _is_among(script: ScriptModel, model: v.Thing, found: set[v.Thing]) -> bool:
    """Whether a model, or a part of it (`model.generator`), is one of some."""
    return bool(found) and (model in found or model in script.outermost(found))


def _runs_parts(script: ScriptModel, method: Scope) -> bool:
    """Whether a method of a model calls a part of it: `return self.up(x)`."""
    own = method.self_name()
    return any(
        isinstance(inner, ast.Call)
        and isinstance(inner.func, ast.Attribute)
        and (dotted(inner.func) or "").startswith(f"{own}.")
        and any(isinstance(w, v.Thing) and w.kind == v.MODEL for w in _called_in(script, method, inner.func))
        for inner in walk(method.node)
    )


def _runs_within(script: ScriptModel, call: ast.Call, model: v.Thing) -> bool:
    """Whether a function of the project that is called runs the model, as its argument or as everybody's."""
    seen: set[Scope] = set()
    queue = list(script.callees(call))
    while queue:
        function = queue.pop()
        if function in seen or function.kind != "function" or is_in_model(script, function):
            continue
        seen.add(function)
        for inner in walk(function.node):
            if isinstance(inner, ast.Call):
                if model in _called_in(script, function, inner.func):
                    return True
                queue += script.callees(inner)
    return False


def _called_in(script: ScriptModel, function: Scope, func: ast.expr) -> Iterable[object]:
    """What a function calls by an expression, also where it stands in a module that is not converted."""
    module = script.interpreter.module_of(function)
    if module in script.modules:
        return script.models_of(func)
    return script.interpreter.evaluate(module, function, func)
