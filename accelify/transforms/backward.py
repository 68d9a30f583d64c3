"""Gradients: `accelerator.backward(loss)`, with the reduction where the loss is summed.

loss.backward(retain_graph=True)    ->  accelerator.backward(loss, retain_graph=True)
scaler.scale(loss).backward()       ->  accelerator.backward(loss)
loss.backward()  # a summed loss    ->  accelerator.backward(loss, reduction="sum")
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accelify.analysis import knowledge as k
from accelify.analysis.losses import MIXED, SUM
from accelify.analysis.script import Backward
from accelify.edits import Edit, Replace
from accelify.findings import Safety, Severity
from accelify.transforms.base import Change, Context, Rule

BACKWARD = Rule("ACC107", "backward", "Gradients are not averaged over processes.", Severity.ERROR)
CLIP = Rule(
    "ACC108", "clip-gradients", "Gradients are clipped before they are unscaled or reduced.", Severity.ERROR
)
REDUCTION = Rule(
    "ACC406", "loss-reduction", "A loss that is part sum, part mean cannot be weighed by itself.", effort=10
)


def transform(context: Context) -> Iterator[Change]:
    """Yield the changes to backward and to clipping."""
    sharded = context.plan.is_sharded(context.script.training_loaders)
    for backward in context.script.backwards:
        yield _backward(context, backward, sharded)
        if sharded and context.plan.reductions.of(backward.loss) == MIXED:
            yield context.todo(
                REDUCTION,
                backward.call,
                "part of this loss is summed over the batch and part is averaged; on several processes only one of "
                "them keeps its weight",
                'sum or average all parts of this loss over the batch, then say reduction="sum" or nothing',
            )
    for call in context.script.calls():
        name = k.CLIPPING.get(context.script.qualname(call.func) or "")
        accelerator = context.accelerator(call) if name else None
        if name and accelerator is not None:
            func = call.func
            edit = Replace(context.tree.start(func), context.tree.end(func), f"{accelerator}.{name}")
            yield context.change(
                CLIP, call, f"`{name}` must see the reduced, unscaled gradients", [edit], core=True
            )


def _backward(context: Context, backward: Backward, sharded: bool) -> Change:
    tree, call = context.tree, backward.call
    accelerator = context.accelerator(call)
    assert accelerator is not None
    reduction = context.plan.reductions.of(backward.loss) if sharded else ""
    arguments = [
        tree.segment(kw.value) if kw.arg is None else f"{kw.arg}={tree.segment(kw.value)}"
        for kw in call.keywords
    ]
    positional = call.args
    func = call.func
    assert isinstance(func, ast.Attribute)
    direct = context.script.qualname(func) == "torch.autograd.backward"
    if direct:
        positional = call.args[1:]
    names = ("gradient", "retain_graph", "create_graph", "inputs")
    arguments = [f"{name}={tree.segment(a)}" for name, a in zip(names, positional, strict=False)] + arguments
    arguments = [a.replace("retain_variables=", "retain_graph=") for a in arguments]
    if reduction == SUM:
        arguments.append('reduction="sum"')
    tail = "".join(f", {a}" for a in arguments) + ")"
    edits: list[Edit]
    if direct or backward.scaler is not None:
        edits = [
            Replace(tree.start(call), tree.start(backward.loss), f"{accelerator}.backward("),
            Replace(tree.end(backward.loss), tree.end(call), tail),
        ]
    else:
        start = tree.start(call)
        dot = tree.data.rindex(b".", 0, tree.end(func) - len("backward"))
        receiver_end = len(tree.data[:dot].rstrip())
        if tree.start(func.value) > start and tree.data[start : start + 1] == b"(":
            # The parentheses around a sum become those of the call.
            edits = [
                Replace(start, start + 1, f"{accelerator}.backward("),
                Replace(receiver_end - 1, tree.end(call), tail),
            ]
        else:
            edits = [
                Replace(start, start, f"{accelerator}.backward("),
                Replace(receiver_end, tree.end(call), tail),
            ]
    problem = ""
    if direct and isinstance(backward.loss, (ast.List, ast.Tuple)):
        problem = "torch.autograd.backward is called with several tensors"
    change = context.change(
        BACKWARD,
        call,
        "gradients are not averaged over processes"
        + (" (the loss is summed over the batch)" if reduction == SUM else ""),
        edits,
        core=True,
        safety=Safety.REVIEW if reduction == "unclear" else Safety.SAFE,
        evidence=(f"the loss is reduced by: {reduction}",) if reduction else ("the data is not sharded",),
    )
    return Change(change.finding, change.edits, True, problem)
