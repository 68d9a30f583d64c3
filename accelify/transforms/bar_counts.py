"""Progress bars that are filled by the samples of a batch, up to those of the whole data set.

with tqdm(total=len(data)) as bar:
    for x, y in loader:
        bar.update(len(x))    ->  bar.update(len(x) * accelerator.num_processes)

One process draws the bar, and sees a part of the samples alone.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accelify import edits as verbs
from accelify.analysis import knowledge as k
from accelify.analysis import values as v
from accelify.analysis.metrics.figures import Figures
from accelify.analysis.metrics.sample_counts import SampleCounts
from accelify.analysis.statements.assignments import assigned_once
from accelify.analysis.syntax import call_argument, dotted
from accelify.edits import Edit
from accelify.transforms.base import Change, Context
from accelify.transforms.progress import PROGRESS

_ALONE = (ast.Name, ast.Attribute, ast.Call, ast.Subscript)


def transform(context: Context) -> Iterator[Change]:
    """Yield the factor of what such a bar is filled by."""
    script, tree = context.script, context.tree
    if b".update(" not in tree.data or not (bars := _bars(context)):
        return
    loops = [loop for loop in context.shared_loops() if not context.plan.on_main_only(loop)]
    counts = SampleCounts(script, Figures(script, context.plan.reductions)) if loops else None
    for asked in tree.named("update"):
        call = tree.parent(asked)
        if counts is None or not isinstance(asked, ast.Attribute) or not isinstance(call, ast.Call):
            continue
        if call.func is not asked or len(call.args) != 1 or not isinstance(asked.value, ast.Name):
            continue
        bar = script.scope_of(call).resolve(asked.value.id), asked.value.id
        added, around = call.args[0], script.enclosing_loops(call)
        if bar not in bars or not around or around[0] not in loops or not counts.adds_samples(added):
            continue
        accelerator = context.accelerator(call)
        if accelerator is None or context.is_claimed(call) or tree.in_fstring(call):
            continue
        if context.plan.batch_size == "total" and counts.adds_batch(added):
            continue  # the batch of all processes together
        message = f"`{tree.segment(bars[bar])}` counts the samples of all processes, of which this is a part"
        factor = f" * {accelerator}.num_processes"
        edits: list[Edit] = [verbs.insert(tree, tree.end(added), factor, -5)]
        if not isinstance(added, _ALONE):
            edits = [
                verbs.insert(tree, tree.start(added), "(", 5),
                verbs.insert(tree, tree.end(added), f"){factor}", -5),
            ]
        yield context.change(PROGRESS, call, message, edits)


def _bars(context: Context) -> dict[tuple[object, str], ast.expr]:
    """The variables that hold bars of as many steps as a data set has samples, each with that number."""
    script, tree = context.script, context.tree
    found: dict[tuple[object, str], ast.expr] = {}
    for call in script.calls_named(k.is_progress):
        total = call_argument(call, 2, "total")
        if total is None or not _counts_samples(context, total):
            continue
        made = tree.parent(call)
        target = made.targets[0] if isinstance(made, ast.Assign) else getattr(made, "optional_vars", None)
        if isinstance(target, ast.Name):
            found[script.scope_of(call).resolve(target.id), target.id] = total
    return found


def _counts_samples(context: Context, total: ast.expr) -> bool:
    """`len(data)`, `len(loader.dataset)`, or a name for one."""
    made = assigned_once(context.script.scope_of(total), total)
    counted = made if isinstance(made, ast.Call) else total
    if not isinstance(counted, ast.Call) or dotted(counted.func) != "len" or len(counted.args) != 1:
        return False
    data = counted.args[0]
    return context.script.is_a(data, v.DATASET) or getattr(data, "attr", "") == "dataset"
