"""Batches drawn by the iterator's method `next`, which torch's loaders had before 1.13: a prepared loader's iterator
does not have it, and no other has it since then.

x, y = iter(loader).next()    ->  x, y = next(iter(loader))
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accelify.analysis import values as v
from accelify.findings import Severity
from accelify.transforms.base import Change, Context, Rule
from accelify.writer import edits as verbs
from accelify.writer.edits import Edit

OLD_NEXT = Rule(
    "ACC122",
    "The iterator of a prepared loader has no method `next`.",
    Severity.ERROR,
    effort=1,
    done="wrote next(iterator) for iterator.next()",
)


def transform(context: Context) -> Iterator[Change]:
    """Yield the edits that draw by Python's `next`, which gives the same batch in every version of torch."""
    script, tree = context.script, context.tree
    for call in script.calls():
        func = call.func
        if not isinstance(func, ast.Attribute) or func.attr != "next" or call.args or call.keywords:
            continue
        if script.callees(call) or not script.is_a(func.value, v.ITERATOR):
            continue
        loaders = script.iterated(func.value)
        prepared = bool(loaders & context.plan.prepared)
        if not prepared and not any(t.qualname == "torch.utils.data.DataLoader" for t in loaders):
            continue
        if script.scope_of(call).resolve("next") is not None:
            continue
        edits: list[Edit] = [
            verbs.replace(call, "next(", func.value, ")"),
        ]
        since = "once its loader is prepared" if prepared else "since torch 1.13"
        message = f"`{tree.segment(func.value)}` has no `next` of its own {since}"
        yield context.change(OLD_NEXT, call, message, edits)
