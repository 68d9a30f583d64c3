"""Intervals computed from a loader's length by `//`, which can be 0 where each process has 1/N of the batches.

every = len(loader) // 100           ->  every = max(len(loader) // 100, 1)
for i, (x, y) in enumerate(loader):      for i, (x, y) in enumerate(loader):
    if i % every == 0:                       if i % every == 0:
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accelify.analysis.schedules.schedule_lengths import given_to, lengths_read_by
from accelify.analysis.syntax import dotted
from accelify.transforms.base import Change, Context
from accelify.transforms.lengths import LENGTH
from accelify.writer import edits as verbs

_ROUNDING = frozenset("int round floor trunc".split())
_FARTHEST = 4


def transform(context: Context) -> Iterator[Change]:
    """Yield the bound for each such interval that is computed after prepare and is the divisor of a `%`."""
    plan = context.plan
    if plan.batch_size == "total" or plan.hand_cut is not None or plan.known.distributed:
        return
    done: set[ast.expr] = set()
    for node in context.tree.nodes(ast.BinOp):
        if not isinstance(node.op, ast.Mod) or _is_text(node.left):
            continue
        for number in _whole_divisions(context, node.right):
            if number in done or context.is_claimed(number):
                continue
            if _is_guarded(context, number) or not _is_of_one_process(context, number):
                continue
            done.add(number)
            text = context.tree.segment(number)
            message = (
                f"`{text}` comes to 0 where each of several processes has few enough batches, and "
                f"`{context.tree.segment(node)}` then divides by zero"
            )
            yield context.change(LENGTH, number, message, [verbs.replace(number, f"max({text}, 1)")])


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def _whole_divisions(context: Context, divisor: ast.expr, far: int = 0) -> Iterator[ast.expr]:
    """`len(loader) // 10`, `int(0.1 * len(loader))` as a divisor, or the value of the name that is the divisor."""
    if isinstance(divisor, ast.BinOp) and isinstance(divisor.op, ast.FloorDiv):
        yield divisor
    elif isinstance(divisor, ast.Call):
        rounds = (dotted(divisor.func) or "").rpartition(".")[2] in _ROUNDING
        if rounds and len(divisor.args) == 1 and isinstance(divisor.args[0], ast.BinOp):
            yield divisor
    elif isinstance(divisor, (ast.Name, ast.Attribute)) and far < _FARTHEST:
        for value in _contained(context, divisor):
            yield from _whole_divisions(context, value, far + 1)


def _contained(context: Context, read: ast.Name | ast.Attribute) -> Iterator[ast.expr]:
    script, name = context.script, dotted(read) or ""
    for value, module in given_to(script, script.module_of(read), read):
        if module in script.modules and isinstance(value, ast.expr):
            yield value
    owner = script.scope_of(read).owner_class
    for stmt in context.tree.assigns(name) if owner is not None and "." in name else ():
        scope = script.scope_of(stmt)
        if scope.owner_class is owner and scope is not script.scope_of(read):
            yield stmt.value


def _is_guarded(context: Context, number: ast.expr) -> bool:
    """Whether the script itself asks if the rhythm is 0, so that 1 would be another one."""
    stmt = context.tree.statement(number)
    names = {dotted(t) for t in stmt.targets} if isinstance(stmt, ast.Assign) else set()
    for read in context.tree.nodes(ast.Name, ast.Attribute) if names else ():
        if not isinstance(read.ctx, ast.Load) or dotted(read) not in names:
            continue
        around = context.tree.parent(read)
        if isinstance(around, (ast.BoolOp, ast.UnaryOp, ast.IfExp, ast.If, ast.While)):
            return True
        if isinstance(around, ast.Compare) and any(
            isinstance(side, ast.Constant) for side in (around.left, *around.comparators)
        ):
            return True
    return False


def _is_of_one_process(context: Context, number: ast.expr) -> bool:
    """Whether a number is computed from the length that a loader has after prepare."""
    script, plan = context.script, context.plan
    for length in lengths_read_by(script, script.module_of(number), number):
        loaders = length.loaders(script)
        places = length.places(script) if loaders and loaders <= plan.prepared else []
        if any(plan.after_prepare(p, loaders) or plan.runs_prepared(p, loaders) for p in places):
            return plan.is_sharded(loaders)
    return False
