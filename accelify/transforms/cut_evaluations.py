"""Evaluations that end after a fixed number of batches, which each process takes from its own share.

for i, (x, y) in enumerate(loader):    (a finding: N processes evaluate N times as many batches)
    if i == 20:
        break
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accelify.analysis.metrics.counts import steps_of
from accelify.analysis.metrics.evaluation_loop import NO_MODEL, EvaluationLoop
from accelify.analysis.statements.enumerated import counter_of
from accelify.analysis.syntax import calls_in, dotted, walk
from accelify.findings import Severity
from accelify.transforms.base import Change, Context, short
from accelify.transforms.rounds import ROUNDS
from accelify.transforms.sample_counts import is_of_one_process

_REACHING = (ast.Eq, ast.Gt, ast.GtE, ast.Lt, ast.LtE)
_ENDS = (ast.Break, ast.Return)


def transform(context: Context) -> Iterator[Change]:
    """Yield a finding for each evaluation over a sharded loader that counts its batches to a limit."""
    plan = context.plan
    if plan.batch_size == "total" or plan.known.reduces or plan.known.distributed:
        return
    for evaluation in plan.evaluations:
        looks = evaluation.only_looks or evaluation.problem == NO_MODEL
        if looks or not plan.is_sharded(evaluation.loaders) or plan.on_main_only(evaluation.loop):
            continue
        for end, limit in _ends(context, evaluation):
            if is_of_one_process(context, limit):
                continue
            message = (
                f"`{short(context.tree.segment(end))}` can end this evaluation after a number of batches, and each of "
                "N processes goes through so many: the figures cover N times as many batches as on one; divide it by "
                "accelerator.num_processes where they are to be of the same"
            )
            yield context.change(ROUNDS, end, message, severity=Severity.INFO)
            break


def _ends(context: Context, evaluation: EvaluationLoop) -> Iterator[tuple[ast.expr, ast.expr]]:
    """The tests and cuts by which a loop ends after some batches, with the numbers of them."""
    loop, tree = evaluation.loop, context.tree
    for call in calls_in(loop.iter):
        if context.script.qualname(call.func) == "itertools.islice" and len(call.args) == 2:
            yield call, call.args[1]
    for branch in (n for s in loop.body for n in walk(s) if isinstance(n, ast.If)):
        if not isinstance(branch.body[-1], _ENDS):
            continue
        if (
            next(a for a in tree.ancestors(branch) if isinstance(a, (ast.For, ast.AsyncFor, ast.While)))
            is not loop
        ):
            continue
        for test in (n for n in walk(branch.test) if isinstance(n, ast.Compare) and len(n.ops) == 1):
            if isinstance(test.ops[0], _REACHING):
                for one, other in ((test.left, test.comparators[0]), (test.comparators[0], test.left)):
                    if _counts_batches(context, loop, one):
                        yield test, other


def _counts_batches(context: Context, loop: ast.For | ast.AsyncFor, side: ast.expr) -> bool:
    """`i`, `i + 1` with the number of the batch."""
    if isinstance(side, ast.BinOp) and isinstance(side.op, (ast.Add, ast.Sub)):
        side = side.left if isinstance(side.right, ast.Constant) else side.right
    name = dotted(side) if isinstance(side, ast.Name) else None
    return name is not None and (
        name == counter_of(context.script, loop) or steps_of(context.script, loop, name)
    )
