"""Gradients: `accelerator.backward(loss)`, with the reduction where the loss is summed.

loss.backward(retain_graph=True)    ->  accelerator.backward(loss, retain_graph=True)
scaler.scale(loss).backward()       ->  accelerator.backward(loss)
loss.backward()  # a summed loss    ->  accelerator.backward(loss, reduction="sum")

error.backward()  # of an input that is fitted to the batch   ->  error.backward(inputs=[x])
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accelify.analysis import knowledge as k
from accelify.analysis.losses.input_gradients import InputGradients
from accelify.analysis.losses.reduction_kinds import MIXED, SUM
from accelify.analysis.script import Backward
from accelify.analysis.syntax import is_constant, walk
from accelify.analysis.values import Mapping, Sequence
from accelify.findings import Safety, Severity
from accelify.transforms.base import Change, Context, Rule
from accelify.writer import edits as verbs
from accelify.writer.edits import Edit, InsertBefore

BACKWARD = Rule(
    "ACC107",
    "Gradients are not averaged over processes.",
    Severity.ERROR,
    done="averaged the gradients over the processes",
)
CLIP = Rule(
    "ACC108",
    "Gradients are clipped before they are unscaled or reduced.",
    Severity.ERROR,
    done="clipped gradients after they are averaged",
)
REDUCTION = Rule("ACC406", "A loss that is part sum, part mean cannot be weighed by itself.", effort=10)


def transform(context: Context) -> Iterator[Change]:
    """Yield the changes to backward and to clipping."""
    sharded = context.plan.shares_training_data
    if context.plan.known.distributed:
        sharded = False  # DistributedDataParallel averaged over processes, for any loss
    gradients = InputGradients(context.script) if sharded else None
    for backward in context.script.backwards:
        if gradients is not None and gradients.names_them(backward):
            continue
        yield _backward(context, backward, sharded)
        if sharded and context.plan.reductions.of(backward.loss) == MIXED:
            yield context.todo(
                REDUCTION,
                backward.call,
                "this loss is in part, or in one case, summed over the batch and otherwise averaged; on several "
                "processes only one of the two keeps its weight",
                'sum or average all parts of this loss over the batch, then say reduction="sum" or nothing'
                if not context.for_accelerate
                else "multiply what is summed over the batch by accelerator.num_processes",
            )
    for backward in context.script.every_backward:
        yield from _of_batch_fit(context, backward)
    for call in context.script.calls_to(k.CLIPPING):
        name = k.CLIPPING.get(context.script.qualname(call.func) or "")
        accelerator = context.accelerator(call) if name else None
        if name and accelerator is not None:
            func = call.func
            edit: Edit = verbs.replace(func, f"{accelerator}.{name}")
            if context.for_accelerate and not _accelerate_takes(name, call):
                if "mixed_precision" not in context.plan.arguments:
                    continue  # reduced by then, and not scaled
                statement = context.tree.statement(call)
                edit = InsertBefore(statement, (f"{accelerator}.unscale_gradients()",))
            yield context.change(
                CLIP,
                call,
                f"`{name}` clips gradients that are not averaged over processes",
                [edit],
                core=True,
            )


def _of_batch_fit(context: Context, backward: Backward) -> Iterator[Change]:
    """An input fitted to a batch gets gradients; a trained model that it runs through gets none from it."""
    names = context.script.batch_fits.fitted_by(backward)
    if not names or any(keyword.arg == "inputs" for keyword in backward.call.keywords):
        return
    around = context.script.enclosing_loops(backward.call)
    nodes = walk(around[0]) if around else backward.scope.nodes
    runs = {m for n in nodes if isinstance(n, ast.Call) for m in context.script.models_run(n)}
    if runs & context.plan.prepared:
        yield _of_inputs(context, backward, names)


def _of_inputs(context: Context, backward: Backward, inputs: list[str]) -> Change:
    """A backward for the gradient of an input stays local to each process; the parameters get no gradient from it."""
    call = backward.call
    text = f"inputs=[{', '.join(inputs)}]"
    message = f"this backward is for `{inputs[0]}.grad`, and would average the parameters' gradients in vain"
    return context.change(BACKWARD, call, message, [verbs.AddArgument(call, text)], core=True)


def _accelerate_takes(name: str, call: ast.Call) -> bool:
    """Whether Accelerate's clipping has all the arguments of a call: it lacks `foreach` and the like."""
    known = (
        ["parameters", "max_norm", "norm_type"] if name == "clip_grad_norm_" else ["parameters", "clip_value"]
    )
    return len(call.args) <= len(known) and all(kw.arg in known for kw in call.keywords)


def _backward(context: Context, backward: Backward, sharded: bool) -> Change:
    call = backward.call
    accelerator = context.accelerator(call)
    assert accelerator is not None
    reduction = context.plan.reductions.of(backward.loss) if sharded else ""
    func = call.func
    assert isinstance(func, ast.Attribute)
    direct = context.script.qualname(func) == "torch.autograd.backward"
    positional = call.args[1:] if direct else call.args
    several = direct and _is_several(context, backward.loss)
    names = ["gradient", "retain_graph", "create_graph", "inputs"]
    if several and positional and _are_none(positional[0]):
        positional, names = positional[1:], names[1:]
    prefixes = [f"{name}=" for name, _ in zip(names, positional, strict=False)] + [""] * len(call.keywords)
    rest: list[ast.expr | ast.keyword] = [*positional, *call.keywords]
    opening, times = f"{accelerator}.backward(", ""
    if reduction == SUM and context.for_accelerate:
        # Accelerate averages gradients over processes; a sum over all samples is that many times more.
        times = f" * {accelerator}.num_processes"
    if several:
        opening, times = f"{opening}sum(", f"){times}"
    pieces: list[verbs.Piece] = [opening, backward.loss, times]
    for prefix, argument in zip(prefixes, rest, strict=True):
        if isinstance(argument, ast.keyword):
            name = "retain_graph" if argument.arg == "retain_variables" else argument.arg
            pieces += [f", {name}=" if name else ", **", argument.value]
        else:
            pieces += [f", {prefix}", argument]
    # What all samples are summed up to is not averaged.
    pieces.append(', reduction="sum")' if reduction == SUM and not context.for_accelerate else ")")
    edits: list[Edit] = [verbs.replace(call, *pieces)]
    problem = ""
    if several and ("gradient=" in prefixes or any(kw.arg == "grad_tensors" for kw in call.keywords)):
        problem = "torch.autograd.backward is called with several tensors and gradients of their own"
    change = context.change(
        BACKWARD,
        call,
        "gradients are not averaged over processes"
        + (" (the loss is summed over the batch)" if reduction == SUM else ""),
        edits,
        core=True,
        safety=Safety.REVIEW if reduction == "unclear" else Safety.SAFE,
        evidence=(f"the loss is reduced by: {reduction}",) if reduction else ("averaged over processes",),
    )
    return Change(change.finding, change.edits, True, problem)


def _is_several(context: Context, losses: ast.expr) -> bool:
    """Whether losses are a list or a tuple, whose gradients are those of their sum."""
    return isinstance(losses, (ast.List, ast.Tuple)) or any(
        isinstance(contained, Sequence) and not isinstance(contained, Mapping)
        for contained in context.script.values(losses)
    )


def _are_none(node: ast.expr) -> bool:
    """Whether a list holds None alone: `[None] * n`, `[None for _ in losses]`."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        return _are_none(node.left) or _are_none(node.right)
    if isinstance(node, (ast.List, ast.Tuple)):
        return all(is_constant(e, None) for e in node.elts)
    if isinstance(node, (ast.ListComp, ast.GeneratorExp)):
        return is_constant(node.elt, None)
    return False
