"""Weights of the loss that are updated from the figures of a batch: they differ between processes.

k = k + 0.1 * (real - fake).item()
                        ->  k = k + 0.1 * accelerator.reduce((real - fake).item(), reduction="mean")
self.radius.data = quantile(dist.detach())    (a finding: it is computed from one process's part of the batch)
self.target[index] = mix(self.target[index], p.detach())    (the same, in the forward of a criterion)
bank.update(features.detach(), index)         (the same, of rows that the loss reads)
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Set

from accelify.analysis.losses.carried import Update, numbers_in, weights
from accelify.analysis.losses.carried_statistics import keeps_statistic
from accelify.analysis.losses.criterion_state import criterion_states
from accelify.analysis.metrics.figures import BatchLoop, Place
from accelify.analysis.models.weight_writes import weight_write
from accelify.analysis.scopes import Scope
from accelify.analysis.syntax import calls_in
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
                    if _keeps_statistic(context, loop, stmt, batch - {place.text}):
                        yield _stored(context, place, stmt)
                    continue
                everywhere = all(figures.runs_everywhere(n, loop) for n in [stmt, *numbers])
                yield _change(context, place, stmt, numbers if everywhere else [])
        yield from _in_losses(context, loop, batch)


def _in_losses(context: Context, loop: BatchLoop, batch: Set[str]) -> Iterator[Change]:
    """What the methods that a loss comes from store of each batch: once for each statement."""
    for one in criterion_states(context.script, loop, batch, context.plan.prepared):
        if one.update in context.reported:
            continue
        context.reported.add(one.update)
        module = context.script.interpreter.module_of(one.method)
        own = module in context.script.modules
        file = module.path.name if module.path is not None else "another module"
        where = "" if own else f" ({file}, line {one.update.lineno})"
        message = (
            f"`self.{one.attribute}` is set in `{one.method.name}`{where} from one process's own part of the batch and "
            "goes into the next loss: each process has another one, and what is computed with it or saved of it is one "
            "process's"
        )
        mark = f"`{one.method.name}` keeps what one process's own batch brings: gather that first (accelerator.gather)"
        yield context.todo(CARRIED, one.update if own else one.call, message, mark)


def _keeps_statistic(context: Context, loop: BatchLoop, stmt: Update, batch: Set[str]) -> bool:
    def runs_model(scope: Scope) -> bool:
        effects = context.effects.of(scope)
        return effects.calls_model or bool(effects.models)

    return (
        weight_write(context.script, stmt) is None  # which the engine reports
        and keeps_statistic(context.script, loop, stmt, batch, runs_model)
    )


def _stored(context: Context, place: Place, stmt: Update) -> Change:
    """The finding for a value set from one process's part of a batch; what is computed from it is not reported."""
    given = [a for n in calls_in(stmt.value) for a in n.args]
    context.averaged += [stmt.value, *(given if isinstance(stmt, ast.Expr) else ())]
    message = (
        f"`{place.text}` is set from one process's own part of the batch and goes into the next loss: each process "
        "has another one, and what is computed with it or saved of it is one process's"
    )
    return context.todo(CARRIED, stmt, message, "gather what it is made of first (accelerator.gather)")


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
