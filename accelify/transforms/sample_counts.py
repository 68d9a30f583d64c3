"""Counts of the samples so far, by which a loop ends or a step starts: they count those of all processes.

seen += batch_size          ->  seen += batch_size * accelerator.num_processes
seen += x.size(0)           ->  seen += accelerator.reduce(x.size(0), reduction="sum")
if seen >= limit:               if seen >= limit:
    break                           break
left -= len(x)              ->  left -= accelerator.reduce(len(x), reduction="sum")
if left <= 0:                   if left <= 0:
    evaluate()                      evaluate()
epoch = seen // len(data_set)   (a finding, where a part of what reads the count means the samples of one process)
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accelify.analysis.metrics.sample_counts import SampleCount, SampleCounts
from accelify.analysis.schedules.schedule_lengths import lengths_read_by
from accelify.analysis.syntax import walk
from accelify.findings import Safety
from accelify.transforms.base import Change, Context, short
from accelify.transforms.rounds import ROUNDS
from accelify.writer import edits as verbs
from accelify.writer.edits import Edit


def transform(context: Context) -> Iterator[Change]:
    """Yield the edit of what is added for each batch, or a finding where the count is that of one process elsewhere."""
    plan = context.plan
    if plan.known.distributed or plan.hand_cut is not None:
        return
    loops = [loop for loop in context.shared_loops() if not plan.on_main_only(loop)]
    if not loops:
        return
    for count in SampleCounts(context.script, context.figures).found(loops):
        if count.nominal and plan.batch_size == "total":
            continue
        if any(is_of_one_process(context, limit) for limit in count.limits):
            continue
        yield _whole(context, count)


def _whole(context: Context, count: SampleCount) -> Change:
    tree, added = context.tree, count.added
    compared = ""
    if count.limits:
        verb = "divided by" if isinstance(tree.parent(count.limits[0]), ast.BinOp) else "compared with"
        compared = f" and is {verb} `{short(tree.segment(count.limits[0]))}`"
    message = f"`{count.name}` counts the samples that one process has seen{compared}: all N have seen N times as many"
    accelerator = context.accelerator(added)
    alike = count.nominal or (not context.for_accelerate and _is_reached_by_all(context, count.stmt))
    if accelerator is None or not count.is_total or not alike:
        return context.todo(ROUNDS, count.stmt, message, "compare the number of samples of all processes")
    context.claim(count.stmt)
    if count.nominal:
        product = verbs.replace(added, added, f" * {accelerator}.num_processes")
        return context.change(ROUNDS, added, message, [product], safety=Safety.REVIEW)
    # Of a last batch that is smaller the processes have different parts. Added up, they agree at the test.
    context.reported |= {
        compare for limit in count.limits if isinstance(compare := tree.parent(limit), ast.Compare)
    }
    edits: list[Edit] = [
        verbs.replace(added, f"{accelerator}.reduce(", added, ', reduction="sum")', order=10),
    ]
    return context.change(ROUNDS, added, message, edits, safety=Safety.REVIEW)


def _is_reached_by_all(context: Context, stmt: ast.stmt) -> bool:
    """Whether all processes reach a statement in each round, so that it can contain a collective."""
    tree, loop = context.tree, context.script.enclosing_loops(stmt)[0]
    leaving = [n for s in loop.body for n in walk(s) if isinstance(n, ast.Continue)]
    before = [n for n in leaving if tree.is_before(n, stmt)]
    return context.runs_everywhere(stmt) and all(context.runs_everywhere(n) for n in before)


def is_of_one_process(context: Context, limit: ast.expr) -> bool:
    """Whether a limit is made of the length that a loader has on one process, or of the number of processes."""
    script, plan = context.script, context.plan
    for length in lengths_read_by(script, script.module_of(limit), limit):
        loaders = length.loaders(script) & plan.prepared
        if loaders and any(
            plan.after_prepare(place, loaders) or plan.runs_prepared(place, loaders)
            for place in length.places(script)
        ):
            return True
    return any(isinstance(n, ast.Attribute) and n.attr == "num_processes" for n in walk(limit))
