"""Prints: once, on the main process.

print(loss)    ->  accelerator.print(loss)
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accelify.analysis.syntax import call_keyword
from accelify.edits import Replace
from accelify.transforms.base import Change, Context, Rule

PRINT = Rule("ACC201", "print", "Every process would print the same line.", effort=1)


def transform(context: Context) -> Iterator[Change]:
    """Yield accelerator.print for the script's own prints."""
    tree = context.tree
    for call in context.script.calls():
        if not (
            isinstance(call.func, ast.Name)
            and call.func.id == "print"
            and isinstance(tree.parent(call), ast.Expr)
        ):
            continue
        if (
            context.script.scope_of(call).resolve("print") is not None
            or call_keyword(call, "file") is not None
        ):
            continue
        if context.is_claimed(call) or not context.reaches_cheaply(call):
            continue
        accelerator = context.accelerator(call)
        if accelerator is None:
            continue
        func = call.func
        yield context.change(
            PRINT,
            call,
            "every process would print this",
            [Replace(tree.start(func), tree.end(func), f"{accelerator}.print")],
        )
