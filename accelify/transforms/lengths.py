"""Lengths of loaders that are taken before prepare changes them."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accelify.analysis import values as v
from accelify.findings import Severity
from accelify.transforms.base import Change, Context, Rule

LENGTH = Rule(
    "ACC401",
    "length-before-prepare",
    "A loader is shorter on each of several processes after prepare.",
    Severity.WARNING,
    effort=5,
)


def transform(context: Context) -> Iterator[Change]:
    """Yield a warning for each `len(loader)` that stands before prepare and does not only feed a scheduler."""
    if context.plan.batch_size == "total":
        return
    script = context.script
    for call in script.calls():
        if not (isinstance(call.func, ast.Name) and call.func.id == "len" and len(call.args) == 1):
            continue
        loaders = script.things(call.args[0], v.LOADER)
        if not loaders or not loaders <= context.plan.prepared or context.plan.after_prepare(call):
            continue
        if _feeds_scheduler(context, call):
            continue
        yield context.change(
            LENGTH,
            call,
            f"`{context.tree.segment(call)}` is one process's length: prepared, each of N takes 1/N of it",
        )


def _feeds_scheduler(context: Context, call: ast.Call) -> bool:
    """A scheduler made with the original's length is right: prepared, it advances by the batches of all processes."""
    for ancestor in context.tree.ancestors(call):
        if isinstance(ancestor, ast.Call) and context.script.is_a(ancestor, v.SCHEDULER):
            return True
        if isinstance(ancestor, ast.Assign) and isinstance(ancestor.targets[0], ast.Name):
            name = ancestor.targets[0].id
            scope = context.script.scope_of(ancestor).resolve(name)
            reads = context.script.reads(name, scope) if scope is not None else []
            return bool(reads) and all(
                any(
                    isinstance(a, ast.Call) and context.script.is_a(a, v.SCHEDULER)
                    for a in context.tree.ancestors(read)
                )
                for read in reads
            )
    return False
