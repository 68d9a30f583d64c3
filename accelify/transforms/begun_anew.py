"""Iterators that a loop makes again after a number of rounds, when one process has no more batches to draw."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accelify.analysis import values as v
from accelify.analysis.schedules.schedule_lengths import lengths_read_by
from accelify.analysis.syntax import dotted, names_in, walk
from accelify.analysis.training_loops import Loop
from accelify.transforms import rounds
from accelify.transforms.base import Change, Context
from accelify.transforms.lengths import batches_of_all, is_divided
from accelify.writer import edits as verbs


def transform(context: Context) -> Iterator[Change]:
    """Yield the division of such a number by the processes, or a mark where it is used for more than that."""
    if context.plan.batch_size == "total" or context.plan.hand_cut is not None:
        return
    done: set[ast.AST] = set()
    for call in context.script.calls():
        source = rounds.drawn_from(call)
        loop = None if source is None else next(iter(context.script.enclosing_loops(call)), None)
        if (
            source is None
            or loop is None
            or isinstance(loop, ast.AsyncFor)
            or rounds.is_caught(context, call)
        ):
            continue
        for branch, loader in _made_anew(context, source, loop):
            for number in _numbers(branch.test):
                if branch not in done and not rounds.is_the_loaders_own(context, loader, number):
                    done.add(branch)
                    yield from _change(context, loop, branch, number)


def _change(context: Context, loop: Loop, branch: ast.If, number: ast.expr) -> Iterator[Change]:
    text = context.tree.segment(number)
    made = _definition(context, number)
    counted = [] if made is None else list(batches_of_all(context, made.value))
    if any(is_divided(context, batches) for batches in counted):
        return
    message = (
        f"the batches are begun anew after `{text}` rounds, as many as all processes have: each of N comes to the end "
        "of its own after 1/N of them"
    )
    batches = counted[0] if len(counted) == 1 else None
    accelerator = None if batches is None else context.accelerator(batches)
    if batches is None or made is None or accelerator is None or not _only_counts(context, loop, made):
        mark = "begin the batches anew, and end, after the rounds of one process"
        yield context.todo(rounds.ROUNDS, branch, message, mark)
        return
    sign = "//" if isinstance(batches.op, ast.FloorDiv) else "/"
    context.claim(batches)
    edit = verbs.replace(batches, batches, f" {sign} {accelerator}.num_processes")
    yield context.change(rounds.ROUNDS, batches, message, [edit])


def _made_anew(
    context: Context, source: ast.Name | ast.Attribute, loop: Loop
) -> Iterator[tuple[ast.If, ast.expr]]:
    """The tests of a loop after which its iterator is made again from a sharded loader, with that loader."""
    tree, script = context.tree, context.script
    for stmt in tree.assigns(dotted(source) or ""):
        value, branch = stmt.value, tree.parent(stmt)
        if not (isinstance(value, ast.Call) and dotted(value.func) in ("iter", "enumerate") and value.args):
            continue
        if not isinstance(branch, ast.If) or stmt not in branch.body or tree.is_within(source, {branch}):
            continue
        if script.enclosing_loops(branch)[:1] == [loop] and script.scope_of(stmt) is script.scope_of(source):
            if context.plan.is_sharded(script.entities(value.args[0], v.LOADER)):
                yield branch, value.args[0]


def _numbers(test: ast.expr) -> Iterator[ast.expr]:
    """N of `i % N == 0` and `not i % N`."""
    for node in walk(test):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
            if not (isinstance(node.right, ast.Constant) and node.right.value == 1):
                yield node.right


def _definition(context: Context, number: ast.expr) -> ast.Assign | None:
    """Where a name is assigned its value, if that is the same for all of its scope."""
    if not isinstance(number, ast.Name):
        return None
    owner = context.script.scope_of(number).resolve(number.id)
    stores = [
        n
        for n in context.tree.nodes(ast.Name)
        if n.id == number.id
        and isinstance(n.ctx, ast.Store)
        and context.script.scope_of(n).resolve(n.id) is owner
    ]
    stmt = context.tree.parent(stores[0]) if len(stores) == 1 else None
    return stmt if isinstance(stmt, ast.Assign) else None


def _only_counts(context: Context, loop: Loop, made: ast.Assign) -> bool:
    """Whether the loop ends by the number, and nothing needs it to be that of all: no mean, and no scheduler."""
    script, tree = context.script, context.tree
    limit = loop.iter if isinstance(loop, ast.For) else loop.test if isinstance(loop, ast.While) else None
    known = set(walk(made.value))
    if limit is None or any(
        length.call not in known for length in lengths_read_by(script, script.module_of(limit), limit)
    ):
        return False
    queue, seen = [made], {made}
    while queue:
        stmt = queue.pop()
        target = stmt.targets[0]
        owner = script.scope_of(stmt).resolve(target.id) if isinstance(target, ast.Name) else None
        if owner is None or not isinstance(target, ast.Name):
            continue
        for read in script.reads(target.id, owner):
            around = list(tree.ancestors(read))
            if any(isinstance(a, ast.Call) and script.is_a(a, v.SCHEDULER) for a in around):
                return False
            parent, place = tree.parent(read), tree.statement(read)
            # A figure that is divided by it; a learning rate may be.
            if isinstance(parent, (ast.BinOp, ast.AugAssign)) and isinstance(parent.op, ast.Div):
                divided = parent.left if isinstance(parent, ast.BinOp) else None
                if divided is None or not _counts_rounds(loop, divided):
                    return False
            if isinstance(place, ast.Assign) and place not in seen and not script.enclosing_loops(place):
                seen.add(place)
                queue.append(place)
    return True


def _counts_rounds(loop: Loop, node: ast.expr) -> bool:
    """Whether an expression is the number of the round: `i / rounds` is how far the loop has come."""
    names = names_in(node)
    target = loop.target if isinstance(loop, ast.For) else None
    counters = names_in(target) if target is not None else set()
    return bool(names) and names <= counters
