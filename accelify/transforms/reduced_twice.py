"""Figures that are put together twice: by what is gathered in the loop, and by a helper that adds up by itself.

for x, y in test_loader:
    hits += (model(x).argmax(1) == y).sum()    # of all processes: what it counts is gathered
hits = reduce_value(hits, average=False)       (a finding: it counts every process's copy of the whole)
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accelify.analysis.losses.reducing_helpers import adds_up
from accelify.analysis.syntax import dotted, names_in, target_names, walk
from accelify.findings import Safety, Severity
from accelify.transforms.base import Change, Context, Rule

TWICE = Rule(
    "ACC310",
    "reduced-twice",
    "A figure of all processes is added up over the processes again.",
    Severity.WARNING,
    Safety.MANUAL,
    effort=5,
)


def transform(context: Context) -> Iterator[Change]:
    """Yield a finding for each such helper that is given what a gathered loop has counted."""
    script, plan = context.script, context.plan
    if plan.known.distributed or not any(
        m.tree.mentions("all_reduce") for m in script.program.modules.values()
    ):
        return
    calls = [call for call in script.calls() if call.args and adds_up(script, call)]
    for evaluation in plan.evaluations if calls else ():
        if evaluation.problem is not None or not evaluation.loaders & plan.prepared:
            continue
        loop = evaluation.loop
        counted = {name for stmt in loop.body for name in _assigned(stmt)}
        for call in calls:
            behind = context.tree.is_after(call, loop)
            if not behind or script.scope_of(call) is not script.scope_of(loop):
                continue
            names = sorted(names_in(call.args[0]) & counted)
            if names:
                yield context.change(
                    TWICE,
                    call,
                    f"`{dotted(call.func)}` adds up what the processes hold, and `{names[0]}` is that of all of them "
                    "already: with several processes it is as many times too large; leave the call out",
                )


def _assigned(stmt: ast.stmt) -> Iterator[str]:
    for node in walk(stmt):
        if isinstance(node, ast.Assign):
            yield from (name for target in node.targets for name in target_names(target))
        elif isinstance(node, ast.AugAssign):
            yield from target_names(node.target)
