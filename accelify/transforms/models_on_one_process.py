"""Models that only one process passes to a function: without their wrapper, and as a copy where it moves them.

save_checkpoint(model, path)    ->  save_checkpoint(accelerator.unwrap_model(model), path)
save_on_cpu(model, path)        ->  save_on_cpu(copy.deepcopy(accelerator.unwrap_model(model)), path)

A model that one process takes to the CPU and back has other weights there for DistributedDataParallel, whose hooks sit
on those that it saw: the next backward would wait for gradients that this process no longer averages with the others.
"""

from __future__ import annotations

import ast

from accelify.analysis.models.moved_elsewhere import moved_elsewhere
from accelify.analysis.modules.module_names import module_at
from accelify.transforms.base import Context
from accelify.writer import edits as verbs
from accelify.writer.edits import Edit


def handed_alone(context: Context, model: ast.expr, accelerator: str) -> list[Edit]:
    """The edits that pass a prepared model to what only the main process runs, which claim it."""
    tree, text = context.tree, context.unwrapped(model, accelerator)
    edits: list[Edit] = []
    taker = tree.parent(model)
    taker = tree.parent(taker) if isinstance(taker, ast.keyword) else taker
    if isinstance(taker, ast.Call) and moved_elsewhere(context.script, taker, model) is not None:
        copy, line = module_at(context.script, taker, "copy")
        text = f"{copy}.deepcopy({text})"
        if line is not None:
            edits.append(context.import_for(taker, line))
    context.claim(model)
    return [verbs.replace(model, text), *edits]
