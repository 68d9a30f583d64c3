"""Losses that are averaged over a count within the batch, of which each process has its own.

loss = each[positive].sum() / positive.sum()
loss.backward()     (a finding: accelerator.backward(loss, weight=positive.sum()) is the loss of the whole batch)

loss = 1 - 2 * (p * y).sum() / (p.sum() + y.sum())
loss.backward()     (a finding: the mean of the processes' ratios is not the ratio of the whole batch's sums)

loss = torch.sqrt(F.mse_loss(output, target))
loss.backward()     (a finding: the mean of the processes' roots is not the root of the whole batch's mean)

mean = probabilities.mean(dim=0)
loss = (mean * torch.log(mean)).sum()
loss.backward()     (a finding: the same of means over the samples, of products of means, of spreads)
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accelify.analysis.losses.own_counts import WEIGHTS, OwnCounts
from accelify.analysis.scopes import Scope
from accelify.analysis.syntax import text_of
from accelify.findings import Safety, Severity
from accelify.transforms.base import Change, Context, Rule, short

COUNT = Rule(
    "ACC425",
    "own-count",
    "A loss is averaged over a count that differs between the processes' shares of the batch.",
    Severity.INFO,
    Safety.MANUAL,
    effort=10,
)

_WHAT = "the mean of the processes' losses is not the loss of the whole batch where shares differ"


def transform(context: Context) -> Iterator[Change]:
    """Yield a finding for each backward whose loss is averaged over such a count."""
    if not context.plan.shares_training_data or context.plan.known.distributed:
        return
    for backward in context.script.backwards:
        if any(kw.arg == "weight" for kw in backward.call.keywords):
            continue
        counts = OwnCounts(context.script, backward, context.plan.reductions)
        said: dict[str, str] = {}
        for node, scope, how in counts.found():
            said.setdefault(how, f"{how}{_place(context, node, scope, backward.call)}")
        if said:
            yield context.change(COUNT, backward.call, _message(context, list(said.values())))
        for node, scope in list(counts.ratios_of_sums())[:1]:
            message = (
                f"{_WHAT}: `{short(text_of(node))}` is a ratio of sums over the batch"
                f"{_line(context, node, scope, backward.call)}, and each process has that of its own share; made for "
                "each sample, and averaged behind it, they agree"
            )
            yield context.change(COUNT, backward.call, message)
        for curve in counts.curved()[:1]:
            place = _place(context, curve.node, curve.scope, backward.call)
            message = (
                f"{_WHAT}: `{short(text_of(curve.node))}` {curve.how}{place}, and each process has that of its own "
                "share; made for each sample and averaged behind it, or of what all processes have gathered, they agree"
            )
            yield context.change(COUNT, backward.call, message)


def _place(context: Context, node: ast.expr, scope: Scope, backward: ast.Call) -> str:
    """Where something stands in another module than the backward."""
    module = context.script.interpreter.module_of(scope)
    if module is context.script.module_of(backward) or module.path is None:
        return ""
    own = module in context.script.modules
    line = context.tree.line_of(node) if own else node.lineno
    return f" ({module.path.name}:{line})"


def _line(context: Context, node: ast.expr, scope: Scope, backward: ast.Call) -> str:
    """Where something stands, in whichever module."""
    place = _place(context, node, scope, backward)
    return place or f" in line {context.tree.line_of(node)}"


def _message(context: Context, said: list[str]) -> str:
    weights = any(how.startswith(WEIGHTS) for how in said)
    remedy = (
        'multiply by the count and divide by accelerator.reduce(count, reduction="mean")'
        if context.for_accelerate or len(said) > 1
        else "accelerator.backward(loss, weight=...) with that number weighs each share by it, where the loss has no "
        "other term"
    )
    # No one number of a share weighs its loss right where several terms are divided, each by its own.
    return f"{_WHAT}: {' and '.join(_told_once(said))}" + ("" if weights else f"; {remedy}")


def _told_once(said: list[str]) -> list[str]:
    """Each with the words before its code; those are left out where the one before it has the same."""
    before = [how.partition("`")[0] for how in said]
    return [
        how.removeprefix(words) if words == last and words != how else how
        for how, words, last in zip(said, before, [None, *before], strict=False)
    ]
