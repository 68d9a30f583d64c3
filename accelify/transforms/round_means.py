"""Means of batch means in an evaluation, in which a smaller last round has the same weight as the others.

for data, target in loader:
    total += criterion(model(data), target).item()      (a finding)
return total / len(loader)
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accelify.analysis.data.loaders import drops_last
from accelify.analysis.metrics.round_means import mean_over_rounds
from accelify.findings import Severity
from accelify.transforms.base import Change, Context, Rule

ROUNDS = Rule(
    "ACC309",
    "mean-of-rounds",
    "A mean of batch means counts a last, shorter round of all processes as much as the others.",
    Severity.INFO,
    effort=3,
)


def transform(context: Context) -> Iterator[Change]:
    """Yield a note for each evaluation that is gathered and averaged round by round, or whose means are reduced."""
    plan = context.plan
    if plan.batch_size == "total" or plan.known.reduces:
        return
    figures = context.figures
    for evaluation in plan.evaluations:
        if evaluation.only_looks:
            continue
        if all(drops_last(context.script, t) for t in evaluation.loaders):
            continue  # there is no shorter round
        if not evaluation.loaders & plan.prepared or plan.on_main_only(evaluation.loop):
            continue
        found = mean_over_rounds(context.script, figures, plan.prepared, evaluation)
        if found is not None and context.accelerator(evaluation.loop) is not None:
            name, node = found
            if evaluation.problem is not None and not _is_reduced(context, evaluation.loop, name):
                continue  # it stays local to one process, as is reported there
            message = (
                f"`{name}` is averaged over rounds of all processes' batches, and a last, shorter round counts as much "
                "as the others: the figure then differs a little from one process's; weigh each round by its number "
                "of samples, or convert with --batch-size total"
            )
            yield context.change(ROUNDS, node, message)


def _is_reduced(context: Context, loop: ast.For | ast.AsyncFor, name: str) -> bool:
    """Whether what an evaluation adds up or collects is combined after its loop, which cannot be gathered."""
    return (context.script.scope_of(loop), name.partition("[")[0]) in context.reduced
