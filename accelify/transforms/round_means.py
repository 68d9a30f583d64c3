"""Means of batch means in an evaluation, whose last round counts as much as the others.

for data, target in loader:
    total += criterion(model(data), target).item()      (a finding)
return total / len(loader)
"""

from __future__ import annotations

from collections.abc import Iterator

from accelify.analysis.figures import Figures
from accelify.analysis.round_means import mean_over_rounds
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
    """Yield a note for each evaluation whose outputs are gathered and averaged round by round."""
    plan = context.plan
    if plan.batch_size == "total" or plan.known.reduces:
        return
    figures = Figures(context.script, plan.reductions)
    for evaluation in plan.evaluations:
        if evaluation.problem is not None or evaluation.loses_batches or evaluation.only_looks:
            continue
        if not evaluation.loaders & plan.prepared or plan.on_main_only(evaluation.loop):
            continue
        found = mean_over_rounds(context.script, figures, plan.prepared, evaluation)
        if found is not None and context.accelerator(evaluation.loop) is not None:
            name, node = found
            message = (
                f"`{name}` is averaged over rounds of all processes' batches, and a last, shorter round counts as much "
                "as the others: the figure then differs a little from one process's; weigh each round by its number "
                "of samples, or convert with --batch-size total"
            )
            yield context.change(ROUNDS, node, message)
