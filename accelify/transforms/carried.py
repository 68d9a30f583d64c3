"""Weights of the loss that are updated from the figures of a batch: they differ between processes.

k = k + 0.1 * (real - fake).item()
                        ->  k = k + 0.1 * accelerator.reduce((real - fake).item(), reduction="mean")
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accelify.analysis.losses.carried import Update, numbers_in, weights
from accelify.analysis.metrics.figures import Place
from accelify.findings import Safety
from accelify.transforms.base import Change, Context, Rule
from accelify.writer import edits as verbs
from accelify.writer.edits import Edit

CARRIED = Rule(
    "ACC417",
    "carried-weight",
    "What weighs the next loss is carried on from one process's own figures.",
    safety=Safety.REVIEW,
    effort=10,
)
_MARK = 'let all processes agree on it: accelerator.reduce(value, reduction="mean")'


def transform(context: Context) -> Iterator[Change]:
    """Yield the average over processes where such a weight is made of a number, else a finding."""
    for loop in context.shared_loops():
        figures = context.figures
        batch = figures.of_the_batch(loop)
        for place, stmts in weights(context.script, loop).items():
            for stmt in stmts:
                numbers = [
                    n
                    for n in numbers_in(context.script, loop, stmt.value, batch)
                    if n not in context.reported
                ]
                if not numbers:
                    # `k = min(max(k, 0), 1)` is made from its previous value only: its other assignments decide.
                    continue
                everywhere = all(figures.runs_everywhere(n, loop) for n in [stmt, *numbers])
                yield _change(context, place, stmt, numbers if everywhere else [])


def _change(context: Context, place: Place, stmt: Update, numbers: list[ast.expr]) -> Change:
    message = f"`{place.text}` weighs the next loss, and is carried on from one process's own figures"
    accelerator = context.accelerator(stmt)
    edits: list[Edit] = []
    for number in numbers:
        inner: ast.expr | None = number
        if context.for_accelerate:
            # Accelerate's reduce takes only tensors.
            func = number.func if isinstance(number, ast.Call) else None
            inner = func.value if isinstance(func, ast.Attribute) else None
        if inner is None or accelerator is None:
            return context.todo(CARRIED, stmt, message, _MARK)
        edits.append(verbs.replace(inner, f"{accelerator}.reduce(", inner, ', reduction="mean")', order=10))
    context.averaged += numbers
    context.reported.update(numbers)
    if not edits:
        return context.todo(CARRIED, stmt, message, _MARK)
    return context.change(CARRIED, stmt, message, edits)
