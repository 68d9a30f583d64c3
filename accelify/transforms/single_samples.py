"""Samples that a training loop picks from its batch by index, which a smaller share of the batch may not have.

for images, labels in loader:
    writer.add_image("images", images[1, 0:1])      (a finding: a share of the last batch may hold one sample)
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accelify.analysis.data.loaders import drops_last
from accelify.analysis.statements.enumerated import without_counter
from accelify.analysis.syntax import assigned_pairs, names_in, target_names, walk
from accelify.findings import Severity
from accelify.transforms.base import Change, Context, short
from accelify.transforms.sharding import BATCH_SHAPE

_MOVING = frozenset("to cuda cpu float long half double detach numpy".split())


def transform(context: Context) -> Iterator[Change]:
    """Yield a finding for the first such sample of each loop over a share that may be smaller."""
    picked = [node for node in context.tree.nodes(ast.Subscript) if _picks(node)]
    if not picked or not context.plan.shares_training_data:
        return
    shared = context.shared_loops()
    for loop, loaders in context.script.loader_loops:
        if loop not in shared or not isinstance(loop, ast.For):
            continue
        if loaders and all(drops_last(context.script, loader) for loader in loaders):
            continue
        inside = {id(n) for stmt in loop.body for n in walk(stmt)}
        near = [node for node in picked if id(node) in inside]
        parts = _parts(context, loop) if near else set()
        for node in near:
            if names_in(node.value) & parts and not _asked_for(context, node, loop):
                message = (
                    f"`{short(context.tree.segment(node))}` picks a sample that a process's share of the last, "
                    "smaller batch may not have: take the first, or one that is asked for by the share's size"
                )
                yield context.change(BATCH_SHAPE, node, message, severity=Severity.INFO)
                break


def _picks(node: ast.Subscript) -> bool:
    """`images[1, 0:1]`, which is a tensor's: not the first of its rows."""
    index = node.slice.elts[0] if isinstance(node.slice, ast.Tuple) and node.slice.elts else None
    number = index.value if isinstance(index, ast.Constant) else None
    return (
        isinstance(node.value, ast.Name)
        and isinstance(node.ctx, ast.Load)
        and type(number) is int
        and number > 0
    )


def _parts(context: Context, loop: ast.For) -> set[str]:
    """The names of a loop that hold its batch, or a part of it that has a row for every sample."""
    parts = set(target_names(without_counter(context.script, loop)))
    stmts = [n for stmt in loop.body for n in walk(stmt) if isinstance(n, ast.Assign)]
    for stmt in context.tree.in_order(stmts):
        for pair in (p for target in stmt.targets for p in assigned_pairs(target, stmt.value)):
            target, value = pair
            while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
                if value.func.attr not in _MOVING:
                    break
                value = value.func.value
            if isinstance(value, ast.Subscript) and isinstance(value.slice, ast.Constant):
                value = value.value
            if isinstance(target, ast.Name):
                retained = isinstance(value, ast.Name) and value.id in parts
                (parts.add if retained else parts.discard)(target.id)
    return parts


def _asked_for(context: Context, node: ast.Subscript, loop: ast.For) -> bool:
    """Whether a test around it reads the batch: `if len(images) > 1:`."""
    name = names_in(node.value)
    for ancestor in context.tree.ancestors(node):
        if ancestor is loop:
            return False
        if isinstance(ancestor, (ast.If, ast.IfExp)) and names_in(ancestor.test) & name:
            return True
    return False


__all__ = ["transform"]
