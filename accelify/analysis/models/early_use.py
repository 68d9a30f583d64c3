"""Models that something is done with before prepare puts them on the device: they are run, copied, or looked into."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from accelify.analysis import values as v
from accelify.analysis.models.weight_copies import WEIGHTS, are_stored, asks_device, keeps_part, makes_another
from accelify.analysis.planning.sites import PrepareSite
from accelify.analysis.scopes import Scope, handed_to, in_order
from accelify.analysis.script import ScriptModel, is_in_model
from accelify.analysis.syntax import dotted, walk

# Library classes that store a copy of their model argument.
_COPYING_CLASSES = frozenset({"AveragedModel", "ModelEma", "ModelEmaV2", "ModelEmaV3", "EMA", "ModelEMA"})

# Library functions that run their model argument.
_RUNNING_FUNCTIONS = frozenset(
    "profile summary add_graph get_model_complexity_info FlopCountAnalysis export trace make_dot".split()
)

_KNOWN = frozenset({"torch", "builtins"})

# Methods that compute with two tensors, which have to be on one device for it; `copy_` takes one from another.
# What draws weights, by its name.
_DRAWING = re.compile(r"(?:normal|uniform|orthogonal|sparse)_?$|^(?:xavier|kaiming)|^reset_parameters$")
_RECKONING = frozenset(
    name + end for name in "add sub mul div lerp addcmul addcdiv dist".split() for end in ("", "_")
)


def is_needed_before_prepare(script: ScriptModel, sites: Iterable[PrepareSite], model: v.Entity) -> bool:
    """Whether the model has to be on the device before prepare puts it there: it is run, or copied, by then."""
    for site in sites:
        if not any(model in item.entities for item in site.items):
            continue
        end = script.tree.end(site.after)
        for call in site.scope.of_type(ast.Call, ast.Attribute):
            # Of attributes, `device` alone asks where a part is.
            if (isinstance(call, ast.Attribute) and call.attr != "device") or script.tree.start(call) >= end:
                continue
            if keeps_part(script, call, lambda part: _is_among(script, model, script.models_of(part))):
                return True
            if isinstance(call, ast.Attribute):
                continue
            if _runs_or_copies(script, call, model) or _reckons_with_another(script, sites, call, model):
                return True
            if _loads_beside(script, call, model):
                return True
    return False


def _loads_beside(script: ScriptModel, call: ast.Call, model: v.Entity) -> bool:
    """Whether an object of the script that is made from the model loads its state, onto the device of the model.

    `optimizer = Stepper(model)` and `optimizer.load_state_dict(...)`: prepare only brings that of torch's optimizers.
    """
    func = call.func
    if not isinstance(func, ast.Attribute) or func.attr != "load_state_dict":
        return False
    if script.is_a(func.value, v.MODEL, v.OPTIMIZER, v.SCHEDULER, v.SCALER):
        return False
    if not script.is_a(func.value, v.INSTANCE) or not _is_moved_before(script, call, model):
        return False
    made = [stmt.value for stmt in script.tree.assigns(dotted(func.value) or "")]
    return any(
        isinstance(value, ast.Call)
        and any(
            model in _models_read(script, given)
            for given in [*value.args, *[kw.value for kw in value.keywords]]
        )
        for value in made
    )


def _reckons_with_another(
    script: ScriptModel, sites: Iterable[PrepareSite], call: ast.Call, model: v.Entity
) -> bool:
    """Whether a call computes with the weights of the model and those of one that the script moves by itself.

    `blend(slow, model)`, or `zip(slow.parameters(), model.parameters())` of a loop that does it.
    """
    given = [*call.args, *[kw.value for kw in call.keywords]]
    if len(given) < 2 or not any(model in _models_read(script, argument) for argument in given):
        return False
    prepared = {entity for site in sites for item in site.items for entity in item.entities}
    others = {other for argument in given for other in _models_read(script, argument)} - prepared
    if not others or not any(_is_moved_before(script, call, other) for other in others):
        return False
    parent = script.tree.parent(call)
    if dotted(call.func) == "zip" and isinstance(parent, ast.For):
        return any(map(_reckons, walk(parent)))
    return any(_reckons(node) for _, node in _run_by(script, call))


def _models_read(script: ScriptModel, argument: ast.expr) -> set[v.Entity]:
    """The models that an argument is, or of whose parameters or state it is: `model.parameters()`."""
    func = argument.func if isinstance(argument, ast.Call) else None
    return script.models_of(func.value if isinstance(func, ast.Attribute) else argument)


def _is_moved_before(script: ScriptModel, call: ast.Call, model: v.Entity) -> bool:
    return any(
        isinstance(move.func, ast.Attribute)
        and move.func.attr in ("to", "cuda")
        and script.tree.is_before(move, call)
        and model in script.models_of(move.func.value)
        for move in script.calls()
    )


def _reckons(node: ast.AST) -> bool:
    return isinstance(node, ast.BinOp) or (isinstance(node, ast.Attribute) and node.attr in _RECKONING)


def _run_by(script: ScriptModel, call: ast.Call) -> Iterator[tuple[Scope, ast.AST]]:
    """The functions of the project that a call reaches, with all of their nodes, without those of models."""
    seen: set[Scope] = set()
    queue = in_order(script.callees(call))
    while queue:
        function = queue.pop()
        if function in seen or function.kind != "function" or is_in_model(script, function):
            continue
        seen.add(function)
        for node in walk(function.node):
            yield function, node
            if isinstance(node, ast.Call):
                queue += in_order(script.callees(node))


def _runs_or_copies(script: ScriptModel, call: ast.Call, model: v.Entity) -> bool:
    if _is_among(script, model, script.models_run(call)) or _runs_within(script, call, model):
        return True
    if isinstance(call.func, ast.Attribute) and model in script.models_of(call.func.value):
        if any(_runs_parts(script, callee) for callee in script.callees(call)):
            return True
    if _keeps_weights(script, call, model) or _draws_weights(script, call, model):
        return True
    if _is_shared(script, call, model):
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
    # `{n: p.data.clone() for n, p in model.named_parameters()}` of a function, `next(model.parameters()).device`
    for callee in script.callees(call):
        names = {name for argument, name in handed_to(call, callee) if script.models_of(argument)}
        if any(makes_another(inner) or asks_device(inner, names) for inner in walk(callee.node)):
            return True
    return False


def _draws_weights(script: ScriptModel, call: ast.Call, model: v.Entity) -> bool:
    """Whether a call initialises the model's weights again after a move: `net.apply(init)`, `init_weights(net)`.

    They are drawn by the generator of the device that they are on.
    """
    applies = isinstance(call.func, ast.Attribute) and call.func.attr == "apply"
    receiver = call.func.value if isinstance(call.func, ast.Attribute) and applies else None
    about = [receiver] if receiver is not None else call.args[:1]
    if not any(_is_among(script, model, script.models_of(one)) for one in about):
        return False
    if receiver is not None:
        functions = [w.scope for a in call.args[:1] for w in script.values(a) if isinstance(w, v.Function)]
        nodes = [n for a in call.args[:1] if isinstance(a, ast.Lambda) for n in walk(a)]
    else:
        functions, nodes = list(script.callees(call)), []
    nodes += [n for function in functions for n in walk(function.node)]
    return any(_DRAWING.search(_named(node)) for node in nodes) and _is_moved_before(script, call, model)


def _is_shared(script: ScriptModel, call: ast.Call, model: v.Entity) -> bool:
    """Whether a call gives the weights, where they are, to other processes: `net.share_memory()`."""
    func = call.func
    if isinstance(func, ast.Attribute) and func.attr == "share_memory":
        return _is_among(script, model, script.models_of(func.value))
    if str(dotted(func) or getattr(func, "attr", "")).rpartition(".")[2] != "Process":
        return False
    given = next((kw.value for kw in call.keywords if kw.arg == "args"), None)
    parts = given.elts if isinstance(given, (ast.Tuple, ast.List)) else []
    return any(_is_among(script, model, script.models_of(part)) for part in parts)


def _named(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _keeps_weights(script: ScriptModel, call: ast.Call, model: v.Entity) -> bool:
    """Whether a call reads weights from which something is made and stored that has to be on their device."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr not in WEIGHTS:
        return False
    return _is_among(script, model, script.models_of(call.func.value)) and are_stored(script, call, _run_by)


def _is_among(script: ScriptModel, model: v.Entity, found: set[v.Entity]) -> bool:
    """Whether a model, or a part of it (`model.generator`), is one of some."""
    return bool(found) and (model in found or model in script.outermost(found))


def _runs_parts(script: ScriptModel, method: Scope) -> bool:
    """Whether a method of a model calls a part of it: `return self.up(x)`."""
    own = method.self_name()
    return any(
        isinstance(inner, ast.Call)
        and isinstance(inner.func, ast.Attribute)
        and (dotted(inner.func) or "").startswith(f"{own}.")
        and any(isinstance(w, v.Entity) and w.kind == v.MODEL for w in _called_in(script, method, inner.func))
        for inner in walk(method.node)
    )


def _runs_within(script: ScriptModel, call: ast.Call, model: v.Entity) -> bool:
    """Whether a function of the project that is called runs the model, as its argument or as everybody's."""
    return bool(script.callees(call)) and any(
        isinstance(inner, ast.Call)
        and (
            model in _called_in(script, function, inner.func) or _runs_method(script, function, inner, model)
        )
        for function, inner in _run_by(script, call)
    )


def _runs_method(script: ScriptModel, function: Scope, call: ast.Call, model: v.Entity) -> bool:
    """Whether a function calls a method that the model defines and that runs parts of it: `model.extract(x)`."""
    return (
        isinstance(call.func, ast.Attribute)
        and model in _called_in(script, function, call.func.value)
        and any(_runs_parts(script, callee) for callee in script.callees(call))
    )


def _called_in(script: ScriptModel, function: Scope, func: ast.expr) -> Iterable[object]:
    """What a function calls by an expression, also where it is in a module that is not converted."""
    module = script.interpreter.module_of(function)
    if module in script.modules:
        return script.models_of(func)
    return script.interpreter.evaluate(module, function, func)
