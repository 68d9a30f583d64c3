"""Weights kept because of a figure: all processes have to keep those of the same step.

if loss < best:
    best = copy.deepcopy(model.state_dict())    (a finding where `loss` is one process's own)
...
model.load_state_dict(best)
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accelify.analysis import values as v
from accelify.analysis.syntax import calls_in, dotted, walk
from accelify.transforms.base import Change, Context, Rule

CHOICE = Rule(
    "ACC411", "local-choice", "Weights are kept because of a figure that is one process's own.", effort=10
)


def transform(context: Context) -> Iterator[Change]:
    """Yield a finding for every test that keeps weights which are loaded again, where processes can differ in it."""
    script = context.script
    if not context.plan.shares_training_data:
        return
    loaded = {
        dotted(argument)
        for call in script.calls()
        if isinstance(call.func, ast.Attribute) and call.func.attr == "load_state_dict"
        for argument in call.args[:1]
    } - {None}
    for branch in context.tree.nodes(ast.If):
        kept = [
            dotted(stmt.targets[0])
            for stmt in branch.body
            if isinstance(stmt, ast.Assign) and _keeps_weights(context, stmt)
        ]
        if not loaded & set(kept) or not _compares(branch.test):
            continue
        if script.is_uniform(branch.test) or context.gathered(branch.test):
            continue
        if context.followed is not None and branch not in context.followed.decisions:
            continue
        text = context.tree.segment(branch.test)
        mark = "let all processes agree: accelerator.reduce(value) before the test"
        message = (
            f"`{text}` can be true on one process only, which then goes on with other weights than the others"
        )
        context.said.add(branch.test)
        yield context.todo(CHOICE, branch, message, mark)


def _compares(test: ast.expr) -> bool:
    return any(
        isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.Lt, ast.LtE, ast.Gt, ast.GtE))
        for node in walk(test)
    )


def _keeps_weights(context: Context, stmt: ast.Assign) -> bool:
    return any(
        isinstance(call.func, ast.Attribute)
        and call.func.attr == "state_dict"
        and context.plan.is_prepared(call.func.value, v.MODEL)
        for call in calls_in(stmt.value)
    )
