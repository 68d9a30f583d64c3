"""Models that only one process passes to a function: without their wrapper, and as a copy where it moves them.

save_checkpoint(model, path)    ->  save_checkpoint(accelerator.unwrap_model(model), path)
save_on_cpu(model, path)        ->  save_on_cpu(copy.deepcopy(accelerator.unwrap_model(model)), path)

A model that one process takes to the CPU and back has other weights there for DistributedDataParallel, whose hooks sit
on those that it saw: the next backward would wait for gradients that this process no longer averages with the others.
"""

from __future__ import annotations

import ast

from accelify.analysis.modules.module_names import module_at
from accelify.analysis.scopes import Scope, handed_to, in_order
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import dotted, walk
from accelify.transforms.base import Context
from accelify.writer import edits as verbs
from accelify.writer.edits import Edit

_MOVING = frozenset({"cpu", "half", "double", "bfloat16"})
# The function may pass the model on to another one.
_FARTHEST = 2


def handed_alone(context: Context, model: ast.expr, accelerator: str) -> list[Edit]:
    """The edits that pass a prepared model to what only the main process runs, which claim it."""
    tree, text = context.tree, context.unwrapped(model, accelerator)
    edits: list[Edit] = []
    taker = tree.parent(model)
    taker = tree.parent(taker) if isinstance(taker, ast.keyword) else taker
    if isinstance(taker, ast.Call) and _moved_elsewhere(context.script, taker, model) is not None:
        copy, line = module_at(context.script, taker, "copy")
        text = f"{copy}.deepcopy({text})"
        if line is not None:
            edits.append(context.import_for(taker, line))
    context.claim(model)
    return [verbs.replace(model, text), *edits]


# Functions that move a model argument: `torch.save(model.cpu().state_dict(), path)`, `model.to(device)`.
#
# Where one process alone runs them, its weights are others for DistributedDataParallel, which hooks on those that it
# saw.


def _moved_elsewhere(script: ScriptModel, call: ast.Call, model: ast.expr) -> tuple[Scope, ast.Call] | None:
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
