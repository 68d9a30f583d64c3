"""What a script makes once for each GPU of DataParallel, which passes one to each of its copies: a process has one GPU.

logits = model(prototypes.unsqueeze(0).repeat(n_gpu, 1, 1), x)
    ->  logits = model(prototypes.unsqueeze(0).repeat(1, 1, 1), x)
adjacency = graph.expand(len(gpus), -1, -1)
    ->  adjacency = graph.expand(1, -1, -1)
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accelify.analysis import knowledge as k
from accelify.analysis.devices.gpu_counts import DeviceCounts
from accelify.analysis.syntax import call_argument, dotted
from accelify.transforms.base import Change, Context, Rule, short
from accelify.writer import edits as verbs
from accelify.writer.edits import Edit

COPIED = Rule(
    "ACC125",
    "What is made once for each GPU of DataParallel is as many times too large for one process.",
    done="made once what was repeated for each GPU",
)
_COPYING = frozenset({"repeat", "expand", "tile"})
_COPYING_WORDS = (b".repeat(", b".expand(", b".tile(")


def transform(context: Context) -> Iterator[Change]:
    """Yield one copy for each number of GPUs of a DataParallel that is taken out."""
    script, tree = context.script, context.tree
    if not any(tree.mentions(word) for word in _COPYING_WORDS):
        return
    wraps = [
        call
        for call in script.calls()
        if script.qualname(call.func) in k.PARALLEL_WRAPPERS and call.args
        if script.models_of(call.args[0]) & context.plan.prepared
    ]
    numbers = {name for call in wraps if (name := _counted(call_argument(call, 1, "device_ids"))) is not None}
    counts = DeviceCounts(script)
    if not wraps or not (numbers or counts.are_asked):
        return
    for call in script.calls():
        func = call.func
        if not isinstance(func, ast.Attribute) or func.attr not in _COPYING or len(call.args) < 2:
            continue
        count = call.args[0]
        if not (dotted(count) in numbers or counts.is_count(count)) or context.is_claimed(call):
            continue
        message = (
            f"`{short(tree.segment(call))}` makes one for each GPU of DataParallel, whose copies took one each; a "
            "process has one GPU"
        )
        edits: list[Edit] = [verbs.replace(count, "1")]
        yield context.change(COPIED, call, message, edits)


def _counted(ids: ast.expr | None) -> str | None:
    """The name of the number in `range(n_gpu)` or `list(range(n_gpu))`."""
    if isinstance(ids, ast.Call) and dotted(ids.func) == "list" and len(ids.args) == 1:
        ids = ids.args[0]
    if isinstance(ids, ast.Call) and dotted(ids.func) == "range" and len(ids.args) == 1:
        return dotted(ids.args[0])
    return None
