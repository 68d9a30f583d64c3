"""Loops over the batches of one step, which were drawn before: an accumulation window.

for step in range(steps):
    window = [next(batches) for _ in range(4)]
    for batch in window:
        ...
"""

from __future__ import annotations

import ast

from accelify.analysis import values as v
from accelify.analysis.metrics.figures import BatchLoop, draws
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import walk


def is_over_window(script: ScriptModel, loop: BatchLoop) -> bool:
    """Whether a loop goes over batches that a loop around it has drawn for this round: a fixed number of them on every
    process, while of a whole pass each has its part."""
    if isinstance(loop, ast.While):
        return False
    parts = [n for n in walk(loop.iter) if isinstance(n, ast.expr)]
    if any(script.is_a(part, v.LOADER, v.ITERATOR) for part in parts):
        return False
    read = script.iterated(loop.iter)
    passes = {id(other): loaders for other, loaders in script.loader_loops}
    inside = {id(n) for n in walk(loop)}
    for outer in script.enclosing_loops(loop):
        drawn = {
            t
            for call in walk(outer)
            if isinstance(call, ast.Call) and draws(call) and id(call) not in inside
            for batch in script.entities(call, v.BATCH)
            for t in batch.link("loader")
        }
        if read & (drawn | passes.get(id(outer), set())):
            return True
    return False
