"""Evaluation: metrics over all processes, without the duplicates of padding.

output = model(data)    ->  output = model(data)
                            output, target = accelerator.gather_for_metrics((output, target))
"""

from __future__ import annotations

from collections.abc import Iterator

from accelify import edits as verbs
from accelify.analysis.evaluation import EvaluationLoop
from accelify.edits import Edit, InsertAfter, InsertBefore
from accelify.findings import Severity
from accelify.transforms.base import Change, Context, Rule

GATHER = Rule(
    "ACC301",
    "gather-metrics",
    "Metrics would cover one process's share of the data only.",
    Severity.ERROR,
    effort=5,
)
REPEATED = Rule(
    "ACC303", "evaluation-repeated", "Every process evaluates the whole data set.", Severity.INFO, effort=10
)


def transform(context: Context) -> Iterator[Change]:
    """Yield gather_for_metrics for evaluation loops over sharded loaders, and a note for the others."""
    for evaluation in context.plan.evaluations:
        if not evaluation.loaders & context.plan.prepared:
            if evaluation.problem is not None:
                yield context.change(
                    REPEATED,
                    evaluation.loop.iter,
                    f"every process evaluates all of this data, so that the metrics stay right ({evaluation.problem})",
                    severity=Severity.INFO,
                )
            continue
        if evaluation.problem is not None:
            yield context.todo(
                GATHER,
                evaluation.loop,
                f"this loop sees one process's share of the data and its metrics cannot be gathered by itself: {evaluation.problem}",
                "gather what the metrics need: accelerator.gather_for_metrics((outputs, targets))",
            )
            continue
        yield from _gather(context, evaluation)


def _gather(context: Context, evaluation: EvaluationLoop) -> Iterator[Change]:
    tree = context.tree
    accelerator = context.accelerator(evaluation.loop)
    if accelerator is None:
        yield context.todo(
            GATHER, evaluation.loop, "this loop sees one process's share of the data",
            "gather what the metrics need: accelerator.gather_for_metrics((outputs, targets))",
        )  # fmt: skip
        return
    names = evaluation.gathered
    joined = ", ".join(names)
    line = f"{joined} = {accelerator}.gather_for_metrics({joined if len(names) == 1 else f'({joined})'})"
    edits: list[Edit] = []
    if evaluation.after is not None and names:
        edits.append(InsertAfter(evaluation.after, (line,)))
    for call in evaluation.inline:
        assert evaluation.before is not None
        text = tree.segment(call)
        scope = context.script.scope_of(call)
        free = [n for n in ("output", "outputs", "predictions") if scope.resolve(n) is None]
        if names and free and "\n" not in text and ".to(" not in text and ".cuda(" not in text:
            # One collective for all: the outputs get a name of their own.
            line = f"{free[0]}, {joined} = {accelerator}.gather_for_metrics(({text}, {joined}))"
            edits += [InsertBefore(evaluation.before, (line,)), verbs.replace(tree, call, free[0])]
            continue
        edits.append(verbs.insert(tree, tree.start(call), f"{accelerator}.gather_for_metrics(", 10))
        edits.append(verbs.insert(tree, tree.end(call), ")", -10))
        if names:
            edits.append(InsertBefore(evaluation.before, (line,)))
    if edits:
        yield context.change(
            GATHER,
            evaluation.loop.iter,
            "the metrics of this loop would cover one process's share of the data",
            edits,
            core=True,
        )
