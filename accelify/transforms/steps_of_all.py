"""Trainings that end after a number of steps, which is computed from the batches of all processes.

per_epoch = len(data) / batch_size         (a finding: each of N processes takes 1/N of that in an epoch)
total = int(per_epoch * epochs)
while step < total:
    for x, y in loader:
        step += 1
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accelify.analysis import values as v
from accelify.analysis.schedules.counted_steps import CountedSteps
from accelify.analysis.syntax import dotted, walk
from accelify.analysis.training_loops import Loop
from accelify.transforms.base import Change, Context
from accelify.transforms.lengths import LENGTH, counts_samples, is_batch_size, is_divided

_ROUNDING = frozenset("int ceil floor round max min float".split())
# How many names there are at most between the division and the end of the loop.
_DEEPEST = 3


def transform(context: Context) -> Iterator[Change]:
    """Yield a finding for each number of all batches that a count of steps is compared with at the end of a loop."""
    if context.plan.batch_size == "total" or context.plan.known.distributed:
        return
    ends: dict[ast.AST, ast.expr] | None = None
    for node in context.tree.nodes(ast.BinOp):
        if not isinstance(node.op, (ast.FloorDiv, ast.Div)) or not is_batch_size(node.right):
            continue
        if context.is_claimed(node) or is_divided(context, node):
            continue
        if not any(counts_samples(context, inner) for inner in walk(node.left)):
            continue
        ends = _ends(context) if ends is None else ends
        end = _end_reached(context, node, ends)
        if end is None:
            continue
        context.claim(node)
        message = (
            f"`{context.tree.segment(node)}` counts the batches of all processes, of which each of N comes to 1/N: the "
            f"training that ends by it in line {end.lineno} takes N times the epochs; divide it by "
            "`accelerator.num_processes`"
        )
        yield context.change(LENGTH, node, message)


def _ends(context: Context) -> dict[ast.AST, ast.expr]:
    """What training loops over sharded batches are ended by: each part of such a test, with the test."""
    script, found = context.script, dict[ast.AST, ast.expr]()
    for loop in _shared_loops(context):
        steps: CountedSteps | None = None
        around = [loop, *script.enclosing_loops(loop)]
        tests = [outer.test for outer in around if isinstance(outer, ast.While)]
        tests += [
            branch.test
            for branch in (n for s in loop.body for n in walk(s) if isinstance(n, ast.If))
            if isinstance(branch.body[-1], (ast.Break, ast.Return))
        ]
        for test in tests:
            for compare in (n for n in walk(test) if isinstance(n, ast.Compare)):
                steps = steps or CountedSteps(script, loop)
                scope = script.scope_of(compare)
                names = [dotted(n) for side in (compare.left, *compare.comparators) for n in walk(side)]
                if any(name is not None and steps.counts(name, scope) for name in names):
                    found.update(dict.fromkeys(walk(compare), test))
        if isinstance(loop, ast.For) and not script.iterated(loop.iter):
            found.update(dict.fromkeys(walk(loop.iter), loop.iter))
    return found


def _shared_loops(context: Context) -> Iterator[Loop]:
    """The loops that train on what a prepared loader gives: over it, or by drawing from it."""
    script, plan = context.script, context.plan
    for loop, loaders in script.loader_loops:
        if plan.is_sharded(loaders) and script.trains(loop):
            yield loop
    stated: set[Loop] = set()
    for call in script.calls():
        last = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        around = script.enclosing_loops(call)[:1] if last in ("next", "__next__") else []
        for drawing in around:
            if drawing in stated or not script.trains(drawing):
                continue
            if plan.is_sharded({t for batch in script.entities(call, v.BATCH) for t in batch.link("loader")}):
                stated.add(drawing)
                yield drawing


def _end_reached(
    context: Context, number: ast.expr, ends: dict[ast.AST, ast.expr], far: int = 0
) -> ast.expr | None:
    """The test of a number, as it is or multiplied, that ends a loop; None where there is none."""
    tree, script = context.tree, context.script
    if not ends or far > _DEEPEST:
        return None
    if number in ends:
        return ends[number]
    child: ast.AST = number
    stmt: ast.AST | None = tree.parent(number)
    while isinstance(stmt, ast.expr):
        if not _keeps(stmt, child):
            return None
        if stmt in ends:
            return ends[stmt]
        child, stmt = stmt, tree.parent(stmt)
    if not isinstance(stmt, ast.Assign) or len(stmt.targets) != 1:
        return None
    name = dotted(stmt.targets[0])
    if name is None:
        return None
    root = name.partition(".")[0]
    owner = script.scope_of(stmt).resolve(root)
    for read in tree.nodes(ast.Attribute if "." in name else ast.Name):
        if (
            isinstance(read, (ast.Name, ast.Attribute))
            and isinstance(read.ctx, ast.Load)
            and dotted(read) == name
        ):
            if owner is not None and script.scope_of(read).resolve(root) is owner:
                end = _end_reached(context, read, ends, far + 1)
                if end is not None:
                    return end
    return None


def _keeps(outer: ast.expr, part: ast.AST) -> bool:
    """Whether an expression is still so many steps: a multiple of them, a share by a number, a round number."""
    if isinstance(outer, ast.BinOp):
        if isinstance(outer.op, (ast.Div, ast.FloorDiv)):
            return outer.left is part and not any(isinstance(n, ast.Call) for n in walk(outer.right))
        return isinstance(outer.op, (ast.Mult, ast.Add))
    if isinstance(outer, ast.Call):
        return (dotted(outer.func) or "").rsplit(".", 1)[-1] in _ROUNDING and part in outer.args
    return isinstance(outer, ast.IfExp) and outer.test is not part
