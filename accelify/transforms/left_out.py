"""Evaluation in a loop over phases, of a loader that leaves whole batches out on several processes.

for phase in ["train", "val"]:
    for x, y in loaders[phase]:      (a finding, where the loader of "val" has drop_last=True)
        with torch.set_grad_enabled(phase == "train"):
            ...
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accelify.analysis import values as v
from accelify.analysis.data.loaders import drops_last
from accelify.analysis.metrics.counts import made_once
from accelify.analysis.metrics.figures import BatchLoop
from accelify.analysis.syntax import call_argument, calls_in, dotted, names_in, walk
from accelify.analysis.values import Mapping, Thing
from accelify.transforms.base import Change, Context, Rule

LEFT_OUT = Rule(
    "ACC308",
    "evaluation-left-out",
    "drop_last=True leaves whole batches out of an evaluation on several processes.",
    effort=3,
)
_MARK = "give the loader that is evaluated drop_last=False, so that no batch of it is left out"


def transform(context: Context) -> Iterator[Change]:
    """Yield a finding for each loop that trains in one phase and evaluates in another, and loses batches there."""
    script, plan = context.script, context.plan
    if plan.batch_size == "total" or plan.known.reduces or plan.known.distributed:
        return
    for loop, loaders in script.loader_loops:
        if not plan.is_sharded(loaders) or not any(drops_last(script, t) for t in loaders):
            continue
        tests = _tests(context, loop)
        evaluated = _evaluated(context, loop, loaders, tests) if tests else set()
        if any(drops_last(script, t) for t in evaluated):
            message = (
                "this loop also evaluates, on a loader with drop_last=True: on N processes up to N-1 whole batches of "
                "a pass are left out, and the figures cover fewer samples than before"
            )
            yield context.todo(LEFT_OUT, loop, message, _MARK)
    ungathered = context.ungathered_loops()
    for evaluation in plan.evaluations:
        if evaluation.loop in ungathered and all(drops_last(script, t) for t in evaluation.loaders):
            message = (
                "this loop evaluates on a loader with drop_last=True that is trained on as well: on N processes up to "
                "N-1 whole batches of a pass are left out, and the figures cover fewer samples than before"
            )
            yield context.change(LEFT_OUT, evaluation.loop.iter, message)


def _tests(context: Context, loop: BatchLoop) -> list[ast.expr]:
    """The tests on which all training of a loop depends, the same for every batch; none where it always trains."""
    script, found = context.script, list[ast.expr]()
    bound = {n.id for n in walk(loop) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    for call in (n for s in loop.body for n in calls_in(s)):
        if not (isinstance(call.func, ast.Attribute) and call.func.attr == "backward") and not script.trains(
            call
        ):
            continue
        inner: ast.AST = call
        for outer in context.tree.ancestors(call):
            if outer is loop:
                return []
            if isinstance(outer, ast.If) and inner in outer.body and not names_in(outer.test) & bound:
                if not any(script.trains(s) for s in outer.orelse):
                    found.append(outer.test)
                    break
            inner = outer
    return found


def _evaluated(context: Context, loop: BatchLoop, loaders: set[Thing], tests: list[ast.expr]) -> set[Thing]:
    """The loaders that a loop goes through without training."""
    chosen = _chosen(context, loop)
    held = (
        [w for w in context.script.values(chosen.value) if isinstance(w, Mapping)]
        if chosen is not None
        else []
    )
    if chosen is not None and held:
        phase = dotted(chosen.slice)
        keys = {key for test in tests for key in _equal_to(test, phase)}
        every = {key for one in held for key in one.entries}
        if keys and (every - keys or any(one.rest for one in held)):
            values = {w for one in held for key in every - keys for w in one.entries.get(key, ())}
            values |= {w for one in held for w in one.rest}
            return {t for t in values if isinstance(t, Thing) and t.kind == v.LOADER}
        if not any(one.rest for one in held):
            return set()
    elif not _is_told(context, loop, tests):
        return set()
    # Which of them is evaluated is not known: all of them have to lose batches.
    return loaders if all(drops_last(context.script, t) for t in loaders) else set()


def _chosen(context: Context, loop: BatchLoop) -> ast.Subscript | None:
    """`loaders[phase]` in what a loop goes through, or in the name of it."""
    node: ast.expr | None = loop.iter if isinstance(loop, (ast.For, ast.AsyncFor)) else None
    while isinstance(node, ast.Call) and node.args:
        node = node.args[0]
    if isinstance(node, ast.Name):
        node = made_once(context.script, node)
    return node if isinstance(node, ast.Subscript) and dotted(node.slice) is not None else None


def _equal_to(test: ast.expr, name: str | None) -> Iterator[object]:
    """The constants that a name is compared with: "train" of `phase == "train"`."""
    for node in walk(test):
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Eq) and dotted(node.left) == name:
            if isinstance(node.comparators[0], ast.Constant):
                yield node.comparators[0].value


def _is_told(context: Context, loop: BatchLoop, tests: list[ast.expr]) -> bool:
    """Whether the function around a loop is told by a parameter whether it trains, and not the same in all calls."""
    script, scope = context.script, context.script.scope_of(loop)
    if scope.kind != "function":
        return False
    positional = scope.positional()[1 if scope.self_name() is not None else 0 :]
    for name in {a.arg for a in scope.parameters()}.intersection(*map(names_in, tests)):
        index = positional.index(name) if name in positional else -1
        given = [call_argument(call, index, name) for call in script.callers(scope)]
        if len({ast.dump(argument) if argument is not None else None for argument in given}) > 1:
            return True
    return False
