"""Losses read as torch's 0.3 had them, a tensor of one element: since 0.5 a number has no index, and reading it ends.

total += loss.data[0]    ->  total += loss.item()
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accelify.analysis.scalar_losses import ScalarLosses
from accelify.analysis.syntax import is_constant
from accelify.edits import YIELDING, Replace
from accelify.findings import Severity
from accelify.transforms.base import Change, Context, Rule

OLD_ITEM = Rule(
    "ACC124",
    "old-item",
    "A loss is one number, which cannot be indexed.",
    Severity.ERROR,
    effort=1,
)


def transform(context: Context) -> Iterator[Change]:
    """Yield the edits of losses that are read by `.data[0]`."""
    tree = context.tree
    if b".data[" not in tree.data:
        return
    scalars = ScalarLosses(context.script)
    for node in tree.nodes(ast.Subscript):
        held = node.value
        if not (isinstance(held, ast.Attribute) and held.attr == "data" and is_constant(node.slice, 0)):
            continue
        if isinstance(node.ctx, ast.Load) and not tree.in_fstring(node) and scalars.has(held.value):
            edit = Replace(tree.end(held.value), tree.end(node), ".item()", YIELDING)
            message = (
                f"`{tree.segment(node)}` ends with an IndexError since torch 0.5: a loss has no elements"
            )
            yield context.change(OLD_ITEM, node, message, [edit])
