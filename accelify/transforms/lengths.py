"""Numbers of batches that are not `len(loader)`: what the transforms that divide them by the processes ask."""

from __future__ import annotations

import ast

from accelify.analysis import knowledge as k
from accelify.analysis.schedules import step_rounds
from accelify.analysis.syntax import dotted
from accelify.transforms.base import Context, Rule

LENGTH = Rule("ACC401", "A loader is shorter on each of several processes after prepare.", effort=5)


def is_batch_size(node: ast.expr) -> bool:
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    return bool(k.BATCH_SIZE_NAME.search(name))


def is_divided(context: Context, node: ast.AST) -> bool:
    """Whether a number is divided by that of the processes: `len(data) // batch_size // accelerator.num_processes`."""
    parent = context.tree.parent(node)
    return (
        isinstance(parent, ast.BinOp)
        and isinstance(parent.op, (ast.FloorDiv, ast.Div))
        and parent.left is node
        and (dotted(parent.right) or "").endswith(".num_processes")
    )


def counts_samples(context: Context, node: ast.AST) -> bool:
    """`len(data)` or `data.__len__()` of what a prepared loader reads, or of its sampler."""
    return step_rounds.counts_samples(context.script, context.plan.prepared, node)
