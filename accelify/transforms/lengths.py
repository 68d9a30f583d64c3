"""Lengths of loaders that are taken before prepare changes them, and numbers of batches that are not `len(loader)`.

print(i, len(data) // batch_size)    ->  print(i, len(data) // batch_size // accelerator.num_processes)

epochs = STEPS // len(loader)    (a finding: N times the epochs of the original, where prepare has come before)
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from accelify.analysis import knowledge as k
from accelify.analysis import values as v
from accelify.analysis.schedules import step_rounds
from accelify.analysis.schedules.configured_totals import configured_totals
from accelify.analysis.schedules.learning_rate import handed_to_a_rate, is_learning_rate
from accelify.analysis.schedules.schedule_lengths import lengths_of
from accelify.analysis.schedules.step_rates import step_rates
from accelify.analysis.schedules.steps import ends_by_steps
from accelify.analysis.statements.unread import is_unread
from accelify.analysis.syntax import dotted, text_of, walk
from accelify.analysis.values import Entity
from accelify.findings import Severity
from accelify.transforms.base import Change, Context, Rule, short

LENGTH = Rule(
    "ACC401",
    "length-before-prepare",
    "A loader is shorter on each of several processes after prepare.",
    Severity.WARNING,
    effort=5,
)
# The names of functions that set a learning rate.
_SETTING_RATE = re.compile(r"(^|_)(lr|learning_rate)(_|$)")


def transform(context: Context) -> Iterator[Change]:
    """Yield a warning for each `len(loader)` that comes before prepare and does not only feed a scheduler."""
    if context.plan.batch_size == "total":
        return
    script = context.script
    scheduled: set[ast.Call] | None = None
    reported: set[ast.Call] = set()
    for place, message in _stated_or_measured(context):
        if place not in reported:
            reported.add(place)
            yield context.change(LENGTH, place, message)
    for call in script.calls():
        if call in reported:
            continue
        if not (isinstance(call.func, ast.Name) and call.func.id == "len" and len(call.args) == 1):
            continue
        loaders = script.entities(call.args[0], v.LOADER)
        if not loaders or not loaders <= context.plan.prepared:
            continue
        if context.plan.after_prepare(call, loaders) or context.plan.runs_prepared(call, loaders):
            continue
        if is_unread(script, call):
            continue
        if scheduled is None:
            scheduled = _scheduled(context)
        if _feeds_scheduler(context, call, scheduled):
            continue
        yield context.change(
            LENGTH,
            call,
            f"`{context.tree.segment(call)}` is taken before prepare: after it, each of N processes has 1/N of that",
        )
    yield from _hand_made_schedules(context)


def _stated_or_measured(context: Context) -> Iterator[tuple[ast.Call, str]]:
    """Lengths taken before prepare that can be replaced by a known number of steps that ends the training."""
    script, plan = context.script, context.plan
    for total in configured_totals(script) if not plan.known.distributed else ():
        loaders = total.length.loaders(script)
        if not loaders or not loaders <= plan.prepared:
            continue
        stated = short(text_of(total.stated))
        for place in total.length.places(script):
            if plan.runs_prepared(place, loaders):
                continue
            wrong = (
                f"with `{stated}` it is N times too fast and ends after 1/N of the run"
                if total.scheduler in plan.prepared
                else "with the length it is N times too slow"
            )
            yield (
                place,
                f"a schedule is made for the configured `{stated}` in one branch, and from "
                f"`{context.tree.segment(place)}`, taken before prepare, in the other: {wrong}; taken after "
                "prepare, both are right",
            )


def _hand_made_schedules(context: Context) -> Iterator[Change]:
    """`len(data) // batch_size` that a learning rate is computed from: each process makes fewer steps than that."""
    for node in context.tree.nodes(ast.BinOp):
        if not isinstance(node.op, (ast.FloorDiv, ast.Div)) or not is_batch_size(node.right):
            continue
        if not any(counts_samples(context, inner) for inner in walk(node.left)):
            continue
        if context.is_claimed(node) or is_divided(context, node):
            continue
        if _sets_learning_rate(context, node) and not _goes_by_steps(context):
            context.claim(node)
            text = context.tree.segment(node)
            message = (
                f"`{text}` counts the batches of all processes, and a learning rate is computed from it: as each of N "
                "makes 1/N of so many steps, divide it by `accelerator.num_processes`"
            )
            yield context.change(LENGTH, node, message)


def _goes_by_steps(context: Context) -> bool:
    """Whether a learning rate follows a reported count of steps (ACC407): when the steps of all processes are counted
    as that finding advises, they are the number of all batches, and the length must not be divided as well."""
    script = context.script
    return any(
        rate.counter is not None and not rate.of_batches
        for loop, loaders in script.loader_loops
        if context.plan.is_sharded(loaders) and any(script.trains(stmt) for stmt in loop.body)
        if not ends_by_steps(script, loop.body[0])
        for rate in step_rates(script, loop)
    )


def is_batch_size(node: ast.expr) -> bool:
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    return bool(k.BATCH_SIZE_NAME.search(name))


def batches_of_all(context: Context, node: ast.expr) -> Iterator[ast.BinOp]:
    """The parts of an expression that count the batches of all processes: `len(data) / batch_size`."""
    for inner in walk(node):
        if isinstance(inner, ast.BinOp) and isinstance(inner.op, (ast.FloorDiv, ast.Div)):
            if is_batch_size(inner.right) and counts_samples(context, inner.left):
                yield inner


def is_divided(context: Context, node: ast.AST) -> bool:
    """Whether a number is divided by that of the processes: `len(data) // batch_size // accelerator.num_processes`."""
    parent = context.tree.parent(node)
    return (
        isinstance(parent, ast.BinOp)
        and isinstance(parent.op, (ast.FloorDiv, ast.Div))
        and parent.left is node
        and (dotted(parent.right) or "").endswith(".num_processes")
    )


def counts_samples(context: Context, node: ast.AST) -> bool:
    """`len(data)` or `data.__len__()` of what a prepared loader reads, or of its sampler."""
    return step_rounds.counts_samples(context.script, context.plan.prepared, node)


def _sets_learning_rate(context: Context, number: ast.expr, far: int = 0) -> bool:
    """Whether a number, or one that is computed from it, is used where a learning rate is set."""
    stmt = context.tree.statement(number)
    for call in context.tree.ancestors(number):
        if call is stmt:
            break
        if isinstance(call, ast.Call) and handed_to_a_rate(context.script.interpreter, call, number):
            return True
        if isinstance(call, ast.Call) and not context.script.callees(call) and number is not call.func:
            # `net.update_lr(rounds)` of a class that cannot be seen: its name is all that is known.
            if _SETTING_RATE.search((dotted(call.func) or "").rpartition(".")[2]):
                return True
    if not isinstance(stmt, (ast.Assign, ast.AugAssign)):
        return False
    targets = stmt.targets if isinstance(stmt, ast.Assign) else [stmt.target]
    if any(is_learning_rate(target) for target in targets):
        return True
    if far > 2 or not isinstance(targets[0], ast.Name):
        return False
    owner = context.script.scope_of(stmt).resolve(targets[0].id)
    reads = context.script.reads(targets[0].id, owner) if owner is not None else []
    return any(_sets_learning_rate(context, read, far + 1) for read in reads)


def _scheduled(context: Context) -> set[ast.Call]:
    """The lengths that schedules are made from, in the script itself or by a helper that it passes them to."""
    schedulers = {t for call in context.script.calls() for t in _schedulers_of(context, call)}
    return {length.call for scheduler in schedulers for length in lengths_of(context.script, scheduler)}


def _schedulers_of(context: Context, call: ast.Call) -> set[Entity]:
    """The schedulers that a call makes, alone or with other objects."""
    values = context.script.values(call)
    inner = {w for value in values if isinstance(value, v.Sequence) for w in value.any()}
    return {w for w in values | inner if isinstance(w, Entity) and w.kind == v.SCHEDULER}


def _feeds_scheduler(context: Context, call: ast.Call, scheduled: set[ast.Call]) -> bool:
    """A scheduler made with the original's length is right: prepared, it advances by the batches of all processes."""

    def makes(node: ast.AST) -> bool:
        if not isinstance(node, ast.Call):
            return False
        return context.script.is_a(node, v.SCHEDULER) or (
            call in scheduled and bool(_schedulers_of(context, node))
        )

    for ancestor in context.tree.ancestors(call):
        if makes(ancestor):
            return True
        if isinstance(ancestor, ast.Assign) and isinstance(ancestor.targets[0], ast.Name):
            name = ancestor.targets[0].id
            scope = context.script.scope_of(ancestor).resolve(name)
            reads = context.script.reads(name, scope) if scope is not None else []
            return bool(reads) and all(any(map(makes, context.tree.ancestors(read))) for read in reads)
    return False
