"""Gradients that a script computes or changes itself, where no engine averages them over the processes.

p.register_hook(lambda g: g.clamp(-1, 1))       (a finding: it clips the gradient of one process)

weight -= lr * weight.grad                  ->  weight.grad = accelerator.reduce(weight.grad, reduction="mean")
                                                weight -= lr * weight.grad   (a tensor that is part of no model)

loss.backward()                                 (a finding where the loss is scaled for the parameters: the gradient
x = x - x.grad                                  of an input is then as many times larger as there are processes)

Gradients that are assigned (`p.grad = torch.autograd.grad(loss, p)[0]`) are named by ACC704 and ACC705, as are
backward, steps and gradients in modules that are not converted, and weights shifted by gradients of one process.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accelify.analysis import values as v
from accelify.analysis.losses.input_gradients import InputGradients
from accelify.analysis.losses.reduction_kinds import MEAN, SUM
from accelify.analysis.models.bare_tensors import UpdatedTensor, tensors_updated_by_hand
from accelify.analysis.syntax import (
    walk,
)
from accelify.analysis.values import Function
from accelify.findings import Safety
from accelify.transforms.base import Change, Context, Rule
from accelify.writer.edits import Edit, InsertBefore

BY_HAND = Rule(
    "ACC416",
    "A gradient that is not made by backward is one process's own, and the processes drift apart.",
    effort=5,
    done="averaged gradients that no backward makes",
)
HOOK = Rule(
    "ACC418",
    "A hook on a parameter sees one process's gradient, before the average.",
    safety=Safety.MANUAL,
    effort=10,
)
# Of a sum, these are not the sum of theirs: clipping, signs, norms.
_NOT_LINEAR = frozenset("clamp clamp_ clip clip_ norm sign sign_ where sqrt abs normalize pow relu".split())


def transform(context: Context) -> Iterator[Change]:
    """Yield the average of gradients that are stepped with by hand, and a finding for each hook that is not linear."""
    if not context.plan.shares_training_data:
        return
    if context.tree.mentions(".grad") and not context.plan.known.distributed:
        for updated in tensors_updated_by_hand(context.script, context.plan.prepared):
            yield _of_bare_tensor(context, updated)
    yield from _of_inputs(context)
    for call in context.script.calls():
        func = call.func
        if not isinstance(func, ast.Attribute) or func.attr != "register_hook" or len(call.args) != 1:
            continue
        if context.script.is_a(func.value, v.PARAMETERS) and _is_not_linear(context, call.args[0]):
            message = "this hook changes one process's gradient before it is averaged over the processes"
            mark = (
                "change the gradients after backward, where they are averaged (accelerator.clip_grad_value_)"
            )
            yield context.todo(HOOK, call, message, mark)


def _of_bare_tensor(context: Context, updated: UpdatedTensor) -> Change:
    """What backward leaves in a tensor of no model is averaged before the script updates the tensor with it."""
    name, accelerator = updated.name, context.accelerator(updated.place)
    edits: list[Edit] = []
    if accelerator is not None and context.runs_everywhere(updated.place):
        line = f'{name}.grad = {accelerator}.reduce({name}.grad, reduction="mean")'
        edits.append(InsertBefore(updated.place, (line,)))
    message = (
        f"`{name}` is updated by hand and is part of no prepared model, so that `{name}.grad` is one process's own: "
        "average it over the processes first"
    )
    return context.change(BY_HAND, updated.read, message, edits)


def _of_inputs(context: Context) -> Iterator[Change]:
    """Gradients of inputs that a backward weighs as those of parameters, or takes of the mean over a share."""
    if context.plan.known.distributed:
        return
    gradients = InputGradients(context.script)
    for backward in context.script.backwards:
        inputs = gradients.inputs(backward)
        read = [f"`{name}.grad`" for name in inputs if gradients.is_scaled(backward, name)]
        if not read:
            continue
        reduction = context.plan.reductions.of(backward.loss)
        if reduction == SUM:
            alone = gradients.names_them(backward)
        else:
            alone = reduction != MEAN or context.plan.batch_size != "total"
        if not alone:
            what = f"{' and '.join(read)}, of an input, is as many times as large as there are processes"
            mark = "divide the gradient of the input by accelerator.num_processes"
            yield context.todo(BY_HAND, backward.call, what, mark)


def _is_not_linear(context: Context, hook: ast.expr) -> bool:
    bodies: list[ast.AST] = [hook.body] if isinstance(hook, ast.Lambda) else []
    if isinstance(hook, (ast.Name, ast.Attribute)):
        bodies += [w.scope.node for w in context.script.values(hook) if isinstance(w, Function)]
    return any(
        isinstance(n, ast.Call)
        and (n.func.attr if isinstance(n.func, ast.Attribute) else getattr(n.func, "id", "")) in _NOT_LINEAR
        for body in bodies
        for n in walk(body)
    )
