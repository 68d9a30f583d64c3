"""Loops over a fixed number of batches, more than one of several processes has.

batches = iter(loader)                    batches = iter(loader)
for i in range(len(data) // 8):    ->     for i in range(min(len(data) // 8, len(loader))):
    x, y = next(batches)                      x, y = next(batches)

for i, (x, y) in enumerate(loader):                for i, (x, y) in enumerate(loader):
    if i == len(data) // batch_size:       ->          if i == len(data) // batch_size // accelerator.num_processes:
        break                                              break

Loops that end by a count of samples, and batches begun anew after a number of rounds, are named by ACC706.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accelify.analysis import values as v
from accelify.analysis.data.loaders import has_length
from accelify.analysis.schedules.schedule_lengths import lengths_read_by
from accelify.analysis.syntax import calls_in, dotted, names_in, walk
from accelify.analysis.training_loops import Loop
from accelify.transforms.base import Change, Context, Rule
from accelify.transforms.lengths import counts_samples, is_batch_size
from accelify.writer import edits as verbs

ROUNDS = Rule(
    "ACC412",
    "A loop takes more batches by hand than one of several processes has.",
    effort=5,
    done="ended loops with the batches that a process has",
)
_CAUGHT = frozenset({"StopIteration", "Exception", "BaseException"})


def transform(context: Context) -> Iterator[Change]:
    """Yield a bound for each loop over a number that is not the length of the loader that it draws from."""
    if context.plan.batch_size == "total":
        return
    yield from _left_out(context)
    done: set[ast.AST] = set()
    for call in context.script.calls():
        source = drawn_from(call)
        if source is None:
            continue
        loop = next(iter(context.script.enclosing_loops(call)), None)
        if loop is None or loop in done or isinstance(loop, ast.AsyncFor) or is_caught(context, call):
            continue
        loader = _made_outside(context, source, loop)
        if loader is None:
            continue
        around = _loops_after(context, source, loop)
        counts = [n for n in map(_number, [loop, *around]) if n is not None]
        if around and not any(is_the_loaders_own(context, loader, n) for n in counts):
            # The inner loop (accumulation) takes its batches as before, and the outer one ends too early.
            if not done & set(around):
                done.update(around)
                text = context.tree.segment(loader)
                message = (
                    f"on N processes `{text}` has 1/N of its batches for each, and these loops ask for all"
                )
                mark = f"end this with the batches of one process: len({text}) of them in all"
                yield context.todo(ROUNDS, around[-1], message, mark)
            continue
        number = _number(loop)
        if number is None or is_the_loaders_own(context, loader, number):
            continue
        done.add(loop)
        text = context.tree.segment(loader)
        message = f"on N processes `{text}` has 1/N of its batches for each, and this loop asks for as many as before"
        if not all(has_length(context.script, one) for one in context.script.entities(loader, v.LOADER)):
            yield context.todo(
                ROUNDS, loop, f"{message}: where its stream ends, it ends too soon",
                "take 1/N of these, where the stream ends",
            )  # fmt: skip
            continue
        taken = _taken_each_round(context, source, loop)
        if (
            taken
            and isinstance(loop, ast.For)
            and not _starts_late(loop)
            and not _divides(context, loop, number)
        ):
            most = f"len({text})" if taken == 1 else f"len({text}) // {taken}"
            new = f"min({context.tree.segment(number)}, {most})"
            yield context.change(ROUNDS, loop.iter, message, [verbs.replace(number, new)])
        else:
            yield context.todo(
                ROUNDS, loop, message, f"end this with the batches of one process: len({text}) of them"
            )


def _taken_each_round(context: Context, source: ast.Name | ast.Attribute, loop: Loop) -> int | None:
    """How many batches each round of a loop takes from an iterator; None where rounds differ, or loops within do it."""
    name, scope = dotted(source), context.script.scope_of(source)
    taken = [
        call
        for call in context.script.calls()
        if (other := drawn_from(call)) is not None
        and dotted(other) == name
        and context.script.scope_of(other) is scope
        and loop in context.script.enclosing_loops(call)
    ]
    if len(taken) == 1:
        return 1  # if not in every round: then there are more batches than it takes
    return len(taken) if all(context.tree.statement(call) in loop.body for call in taken) else None


def _left_out(context: Context) -> Iterator[Change]:
    for branch, _, number in epochs_of_whole_batches(context):
        context.claim(number)
        text = context.tree.segment(number)
        message = (
            f"`{text}` counts the whole batches of all processes: of N processes, each takes 1/N of them"
        )
        accelerator = context.accelerator(branch)
        if accelerator is None:
            yield context.todo(ROUNDS, branch, message, "divide this by the number of processes")
            continue
        divided = verbs.replace(number, number, f" // {accelerator}.num_processes")
        yield context.change(ROUNDS, number, message, [divided])


def epochs_of_whole_batches(context: Context) -> Iterator[tuple[ast.If, ast.For, ast.expr]]:
    """The tests that end an epoch before its last batch, which is smaller; each with its loop and its bound.

    `if i == len(data) // batch_size: break` in `for i, batch in enumerate(loader)`.
    """
    if context.plan.batch_size == "total" or context.plan.hand_cut is not None:
        return
    for branch in context.tree.nodes(ast.If):
        test = branch.test
        if not (
            isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(branch.body[-1], ast.Break)
        ):
            continue
        number, loop = test.comparators[0], next(iter(context.script.enclosing_loops(branch)), None)
        if not isinstance(test.ops[0], (ast.Eq, ast.GtE)) or not isinstance(loop, ast.For):
            continue
        if _counts_batches(loop, test.left) and _is_all_batches(context, number):
            if context.plan.is_sharded(context.script.iterated(loop.iter)):
                yield branch, loop, number


def _counts_batches(loop: ast.For, counter: ast.expr) -> bool:
    """Whether a name is the number of the round: `for i, batch in enumerate(loader)`."""
    iterated, target = loop.iter, loop.target
    return (
        isinstance(counter, ast.Name)
        and isinstance(iterated, ast.Call)
        and dotted(iterated.func) == "enumerate"
        and isinstance(target, ast.Tuple)
        and isinstance(target.elts[0], ast.Name)
        and target.elts[0].id == counter.id
    )


def _is_all_batches(context: Context, number: ast.expr) -> bool:
    """`len(data) // batch_size`."""
    return (
        isinstance(number, ast.BinOp)
        and isinstance(number.op, ast.FloorDiv)
        and is_batch_size(number.right)
        and counts_samples(context, number.left)
    )


def drawn_from(call: ast.Call) -> ast.Name | ast.Attribute | None:
    """The iterator in `next(batches)` or `batches.next()`."""
    func = call.func
    if isinstance(func, ast.Name) and func.id == "next" and len(call.args) == 1:
        source = call.args[0]
    elif isinstance(func, ast.Attribute) and func.attr in ("next", "__next__") and not call.args:
        source = func.value
    else:
        return None
    return source if isinstance(source, (ast.Name, ast.Attribute)) else None


def is_caught(context: Context, call: ast.Call) -> bool:
    """Whether the end of the iterator is looked out for."""
    for ancestor in context.tree.ancestors(call):
        if isinstance(ancestor, ast.Try):
            for handler in ancestor.handlers:
                names = {"Exception"} if handler.type is None else names_in(handler.type)
                if names & _CAUGHT:
                    return True
        if isinstance(ancestor, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            return False
    return False


def _made_outside(
    context: Context, source: ast.Name | ast.Attribute, loop: Loop
) -> ast.Name | ast.Attribute | None:
    """The loader whose iterator a name holds throughout a loop: it is made in the same function, before it."""
    scope, name = context.script.scope_of(source), dotted(source) or ""
    found = None
    for stmt in context.tree.nodes(ast.Assign):
        if context.script.scope_of(stmt) is not scope or all(dotted(t) != name for t in stmt.targets):
            continue
        if found is not None and context.tree.is_after(stmt, loop):
            break  # a name is used again
        value = stmt.value
        if not (isinstance(value, ast.Call) and dotted(value.func) in ("iter", "enumerate") and value.args):
            return None
        if any(ancestor is loop for ancestor in context.tree.ancestors(stmt)):
            return None
        given = value.args[0]
        loaders = context.script.entities(given, v.LOADER)
        if not loaders or not loaders <= context.plan.prepared or not context.plan.is_sharded(loaders):
            return None
        if not isinstance(given, (ast.Name, ast.Attribute)):
            return None
        found = given
    return found


def _loops_after(context: Context, source: ast.Name | ast.Attribute, loop: Loop) -> list[Loop]:
    """The loops around a loop in whose rounds the same iterator continues, inner ones first."""
    scope, name = context.script.scope_of(source), dotted(source) or ""
    made = [stmt for stmt in context.tree.assigns(name) if context.script.scope_of(stmt) is scope]
    return [
        outer
        for outer in context.script.enclosing_loops(loop)
        if outer is not loop and not any(a is outer for stmt in made for a in context.tree.ancestors(stmt))
    ]


def _number(loop: Loop) -> ast.expr | None:
    """What a loop counts to: N of `range(N)` and `range(start, N)`, or what a counter is compared with."""
    if isinstance(loop, ast.While):
        test = loop.test
        if (
            isinstance(test, ast.Compare)
            and len(test.ops) == 1
            and isinstance(test.ops[0], (ast.Lt, ast.LtE))
        ):
            return test.comparators[0]
        return None
    for node in walk(loop.iter):
        if isinstance(node, ast.Call) and dotted(node.func) in ("range", "trange", "tqdm.trange"):
            return node.args[min(1, len(node.args) - 1)] if 0 < len(node.args) < 3 else None
    return None


def _starts_late(loop: ast.For) -> bool:
    """Whether a loop counts on from somewhere: fewer rounds than its stop, which it is not known to be by."""
    ranges = (n for n in calls_in(loop.iter) if len(n.args) == 2)
    return any(
        (dotted(n.func) or "").endswith("range")
        and not (isinstance(n.args[0], ast.Constant) and n.args[0].value == 0)
        for n in ranges
    )


def is_the_loaders_own(context: Context, loader: ast.expr, number: ast.expr) -> bool:
    """Whether a number is computed from the length that the loader has on one process."""
    script, plan = context.script, context.plan
    loaders = script.entities(loader, v.LOADER)
    prepared = loaders & plan.prepared
    read = [number, *_stored_by_class(context, number)]
    return any(
        length.loaders(script) & loaders
        and any(plan.after_prepare(place, prepared) for place in length.places(script))
        for length in lengths_read_by(script, script.module_of(number), *read)
    )


def _stored_by_class(context: Context, number: ast.expr) -> list[ast.expr]:
    """What the methods of a class assign to the attributes of `self` that a number in another of them reads."""
    scope = context.script.scope_of(number)
    own = f"{scope.self_name()}."
    names = {dotted(n) or "" for n in walk(number) if isinstance(n, ast.Attribute)}
    return [
        stmt.value
        for name in names
        if scope.owner_class is not None and name.startswith(own)
        for stmt in context.tree.assigns(name)
        if context.script.scope_of(stmt).owner_class is scope.owner_class
    ]


def _divides(context: Context, loop: ast.For, number: ast.expr) -> bool:
    """Whether figures are divided by the number, which a shorter loop would make wrong."""
    if not isinstance(number, ast.Name):
        return False
    scope = context.script.scope_of(loop)
    owner = scope.resolve(number.id)
    return owner is not None and any(
        isinstance(context.tree.parent(read), (ast.BinOp, ast.AugAssign))
        and isinstance(getattr(context.tree.parent(read), "op", None), ast.Div)
        for read in context.script.reads(number.id, owner)
    )
