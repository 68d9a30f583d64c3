"""Gradients that a script computes or changes itself, where no engine averages them over the processes.

p.grad = torch.autograd.grad(loss, p)[0]    ->  p.grad = accelerator.reduce(torch.autograd.grad(loss, p)[0],
                                                                            reduction="mean")
p.grad += worked_out                        ->  p.grad += accelerator.reduce(worked_out, reduction="mean")
p.grad.data.copy_(worked_out)               ->  p.grad.data.copy_(accelerator.reduce(worked_out, reduction="mean"))
p.register_hook(lambda g: g.clamp(-1, 1))       (a finding: it clips the gradient of one process)

weight -= lr * weight.grad                  ->  weight.grad = accelerator.reduce(weight.grad, reduction="mean")
                                                weight -= lr * weight.grad   (a tensor that is part of no model)

loss.backward()                                 (a finding where the loss is scaled for the parameters: the gradient
x = x - x.grad                                  of an input is then as many times larger as there are processes)

Backward, steps and gradients in modules that are not converted are named by ACC705, weights that are shifted by
gradients of one process by ACC704.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accelify.analysis import values as v
from accelify.analysis.losses.input_gradients import InputGradients
from accelify.analysis.losses.reduction_kinds import MEAN, SUM
from accelify.analysis.models.bare_tensors import UpdatedTensor, tensors_updated_by_hand
from accelify.analysis.syntax import (
    calls_in,
    dotted,
    names_in,
    text_of,
    walk,
    walk_scope,
)
from accelify.analysis.values import Function
from accelify.findings import Severity
from accelify.transforms.base import Change, Context, Rule
from accelify.writer import edits as verbs
from accelify.writer.edits import Edit, InsertBefore

BY_HAND = Rule(
    "ACC416",
    "gradient-by-hand",
    "A gradient that is not made by backward is one process's own, and the processes drift apart.",
    Severity.WARNING,
    effort=5,
)
HOOK = Rule(
    "ACC418",
    "parameter-hook",
    "A hook on a parameter sees one process's gradient, before the average.",
    Severity.WARNING,
    effort=10,
)
# Of a sum, these are not the sum of theirs: clipping, signs, norms.
_NOT_LINEAR = frozenset("clamp clamp_ clip clip_ norm sign sign_ where sqrt abs normalize pow relu".split())


def transform(context: Context) -> Iterator[Change]:
    """Yield the average of each gradient that is assigned, and a finding for each hook that is not linear."""
    if not context.plan.shares_training_data:
        return
    calls = list(context.script.calls())
    if any(context.script.qualname(call.func) == "torch.autograd.grad" for call in calls):
        yield from _assigned(context)
    if context.tree.mentions(".grad") and not context.plan.known.distributed:
        for updated in tensors_updated_by_hand(context.script, context.plan.prepared):
            yield _of_bare_tensor(context, updated)
    yield from _of_inputs(context)
    for call in calls:
        func = call.func
        if not isinstance(func, ast.Attribute) or func.attr != "register_hook" or len(call.args) != 1:
            continue
        if context.script.is_a(func.value, v.PARAMETERS) and _is_not_linear(context, call.args[0]):
            message = "this hook changes one process's gradient before it is averaged over the processes"
            mark = (
                "change the gradients after backward, where they are averaged (accelerator.clip_grad_value_)"
            )
            yield context.todo(HOOK, call, message, mark)


def _assigned(context: Context) -> Iterator[Change]:
    for stmt in context.tree.nodes(ast.Assign, ast.AugAssign, ast.Expr):
        target, value = _stored(stmt)
        if isinstance(target, ast.Attribute) and target.attr == "data":
            target = target.value
        if value is None or not isinstance(target, ast.Attribute) or target.attr not in ("grad", "_grad"):
            continue
        if isinstance(value, ast.Constant) or _reads_gradient(value) or not _is_worked_out(context, stmt):
            continue
        if not isinstance(stmt, ast.Assign) and names_in(value) <= names_in(target):
            continue  # `p.grad += 0.01 * p.data` is the same everywhere
        accelerator = context.accelerator(stmt)
        message = f"`{text_of(target)}` is given one process's own gradient"
        edits: list[Edit] = []
        if accelerator is not None:
            edits.append(verbs.replace(value, f"{accelerator}.reduce(", value, ', reduction="mean")'))
        yield context.change(BY_HAND, stmt, message, edits)


def _stored(stmt: ast.Assign | ast.AugAssign | ast.Expr) -> tuple[ast.expr | None, ast.expr | None]:
    """What a statement stores to, and what it puts there or adds: `a = b`, `a = a + b`, `a += b`, `a.copy_(b)`."""
    if isinstance(stmt, ast.AugAssign):
        return (stmt.target, stmt.value) if isinstance(stmt.op, (ast.Add, ast.Sub)) else (None, None)
    if isinstance(stmt, ast.Assign):
        target, value = stmt.targets[0], stmt.value
        if isinstance(value, ast.BinOp) and isinstance(value.op, (ast.Add, ast.Sub)):
            added = [side for side in (value.left, value.right) if text_of(side) != text_of(target)]
            value = added[0] if len(added) == 1 else value
        return target, value
    call = stmt.value
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.args:
        if call.func.attr in ("copy_", "add_", "sub_"):
            return call.func.value, call.args[0]
    return None, None


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


def _reads_gradient(value: ast.expr) -> bool:
    """Whether a value comes from a `.grad`, which backward has made: a copy of it, or a scaled one."""
    return any(isinstance(n, ast.Attribute) and n.attr in ("grad", "_grad") for n in walk(value)) and not any(
        (dotted(n.func) or "").endswith("autograd.grad") for n in calls_in(value)
    )


def _is_worked_out(context: Context, stmt: ast.stmt) -> bool:
    """Whether the function around an assignment, or one that passes it on, computes gradients by autograd."""
    scope = context.script.scope_of(stmt)
    near = [scope, *[context.script.scope_of(call) for call in context.script.callers(scope)]]
    near += [callee for call in _calls_in(scope.node.body) for callee in context.script.callees(call)]
    return any(
        (dotted(call.func) or "").endswith("autograd.grad") or dotted(call.func) == "grad"
        for one in near
        for call in _calls_in(one.node.body)
    )


def _calls_in(body: list[ast.stmt]) -> Iterator[ast.Call]:
    return (n for n in walk_scope(body) if isinstance(n, ast.Call))


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
