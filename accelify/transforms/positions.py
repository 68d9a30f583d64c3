"""Figures kept by their sample's position: each process fills the places of its own share.

losses = torch.zeros(len(loader.dataset))    (a finding: most of it stays zero on each of several processes)
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accelify.analysis import values as v
from accelify.analysis.syntax import assigned_pairs, dotted, names_in, target_names, walk
from accelify.transforms.base import Change, Context, Rule

POSITIONS = Rule(
    "ACC305",
    "figures-by-position",
    "A place for every sample is filled for one process's share only.",
    effort=20,
)
_ROOMS = frozenset({"zeros", "ones", "empty", "full"})


def transform(context: Context) -> Iterator[Change]:
    """Yield a finding for every tensor as long as the data set that a loop over its shared out loader fills."""
    script = context.script
    if not context.plan.shares_training_data:
        return
    for call in script.calls():
        stmt = context.tree.statement(call)
        name = (script.qualname(call.func) or "").rsplit(".", 1)
        if len(name) != 2 or name[0] not in ("torch", "numpy") or name[1] not in _ROOMS:
            continue
        if not isinstance(stmt, ast.Assign) or not any(_counts_samples(context, a) for a in call.args):
            continue
        scope = script.scope_of(stmt)
        pairs = [pair for t in stmt.targets for pair in assigned_pairs(t, stmt.value)]
        kept = {n for t, value in pairs if call in walk(value) for n in target_names(t)}
        for loop, loaders in script.loader_loops:
            if script.scope_of(loop) is not scope or not context.plan.is_sharded(loaders):
                continue
            filling = [s for s in loop.body if any(_fills(n, kept) for n in walk(s))]
            if filling:
                context.named.update(filling)
                message = (
                    f"`{sorted(kept)[0]}` has a place for every sample, and each process fills those of its own share"
                    " only: gather what is kept with accelerator.gather_for_metrics, or count instead"
                )
                yield context.change(POSITIONS, stmt, message)
                break


def _counts_samples(context: Context, size: ast.expr) -> bool:
    """`len(loader.dataset)` or `len(dataset)`, also within a shape."""
    for node in walk(size):
        if isinstance(node, ast.Call) and dotted(node.func) == "len" and node.args:
            counted = node.args[0]
            if isinstance(counted, ast.Attribute) and counted.attr == "dataset":
                return True
            if context.script.is_a(counted, v.DATASET):
                return True
    return False


def _fills(node: ast.AST, kept: set[str]) -> bool:
    """Whether something is stored in it, here or by a function that it is handed to."""
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
        return bool(kept & names_in(node.value))
    if isinstance(node, ast.Call) and not isinstance(node.func, ast.Attribute):
        return any(isinstance(a, ast.Name) and a.id in kept for a in node.args)
    return False
