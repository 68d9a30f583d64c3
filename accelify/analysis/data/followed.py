"""What is followed in a script: the batches of its sharded loaders, up to where they are gathered or reduced."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Set

from accelify.analysis import values as v
from accelify.analysis.data.loaders import is_shuffled
from accelify.analysis.metrics.figures import draws
from accelify.analysis.metrics.process_share import OwnShare
from accelify.analysis.models.batch_attributes import batch_attributes
from accelify.analysis.models.counted_in_forward import counted_in_forward
from accelify.analysis.planning.plan import Plan
from accelify.analysis.script import ScriptModel
from accelify.analysis.statements.slots import Slot
from accelify.analysis.syntax import walk

# Through how many functions a call is looked for.
_FARTHEST_CALL = 2
Settled = dict[str, list[tuple[ast.For | ast.AsyncFor | ast.While, frozenset[str]]]]


def follow(
    plan: Plan,
    settled: Settled,
    bindings: Callable[[ast.Name], Iterable[ast.stmt | None]],
    agreed: Iterable[ast.expr] = (),
) -> OwnShare | None:
    """Follow the batches of every sharded loader of a script; None where there are none.

    Args:
        plan: of its conversion.
        settled: by name what is reduced after which loop, as it is written there.
        bindings: the statements that can have bound a name where it is read.
        agreed: expressions that are put together where they are.
    """
    script = plan.script
    loops: list[ast.For | ast.AsyncFor | ast.While] = [
        loop
        for loop, loaders in script.loader_loops
        if plan.is_sharded(loaders) and not plan.on_main_only(loop)
    ]
    drawn = []
    for call in script.calls():
        if draws(call):
            loaders = {t for b in script.entities(call, v.BATCH) for t in b.link("loader")}
            # next(enumerate(loader))
            loaders = loaders or (script.iterated(call.args[0]) if len(call.args) == 1 else set())
            if plan.is_sharded(loaders):
                drawn.append(call)
                loops += [loop for loop in script.enclosing_loops(call)[:1] if loop not in loops]
    parts = [
        part
        for part in script.tree.nodes(ast.comprehension)
        if plan.is_sharded(script.iterated(part.iter))
        and any(script.is_a(n, v.LOADER) for n in walk(part.iter) if isinstance(n, (ast.Name, ast.Attribute)))
    ]
    if not loops and not parts:
        return None
    gathered = [*agreed]
    gathered += [node for e in plan.evaluations if e.problem is None for node in e.gathered_nodes]

    def is_settled(slot: Slot, node: ast.expr) -> bool:
        return _is_reduced(script, settled, slot, node) or _is_gathered(plan, slot, node)

    counted: list[ast.expr] = [n for n in counted_in_forward(script) if runs_in(script, set(loops), n)]
    # What an evaluation makes of a batch that it has gathered is the same on every process.
    training = {loop for loop in loops if any(script.trains(s) for s in loop.body)}
    counted += (
        [node for node in batch_attributes(script) if runs_in(script, training, node)] if training else []
    )
    whole = [
        loop
        for loop, loaders in script.loader_loops
        if loaders and not loaders & plan.prepared and not plan.on_main_only(loop)
    ]
    return OwnShare(script, loops, drawn, is_settled, bindings, gathered, parts, counted, whole)


def follow_reordered(
    plan: Plan, bindings: Callable[[ast.Name], Iterable[ast.stmt | None]]
) -> OwnShare | None:
    """Follow the batches of shuffled data that every process evaluates whole in the midst of a training pass.

    In such a loop the random streams of the processes differ, and each draws another order; after it they are equal
    again. The figures differ where the loop ends early or its last batch is smaller. None where there are none.
    """
    script = plan.script
    passes = {
        loop
        for loop, loaders in script.loader_loops
        if plan.is_sharded(loaders) and any(script.trains(s) for s in loop.body)
    }
    loops = [
        e.loop
        for e in plan.evaluations
        if e.loaders
        and not plan.is_sharded(e.loaders)
        and not plan.on_main_only(e.loop)
        and not e.only_looks
        and any(is_shuffled(script, loader) for loader in e.loaders)
        and runs_in(script, passes, e.loop)
    ]
    return OwnShare(script, loops, (), lambda slot, node: False, bindings) if loops else None


def runs_in(script: ScriptModel, loops: Set[ast.AST], node: ast.AST, far: int = 0) -> bool:
    """Whether a node is in one of some loops, or in a function that is called there."""
    if any(ancestor in loops for ancestor in script.tree.ancestors(node)):
        return True
    scope = script.scope_of(node)
    calls = script.callers(scope) if scope.kind == "function" and far < _FARTHEST_CALL else []
    return any(runs_in(script, loops, call, far + 1) for call in calls)


def _is_reduced(script: ScriptModel, settled: Settled, slot: Slot, node: ast.expr) -> bool:
    """Whether a read is of a value that is reduced after a loop, and is outside of that loop."""
    for loop, texts in settled.get(slot.root, ()):
        if slot.text in texts or slot.text.removesuffix(slot.entry) in texts:
            # The loop's `else` comes after it.
            if script.tree.is_after(node, loop.body[-1]):
                return True
            if not any(a is loop for a in script.tree.ancestors(node)):
                return True
    return False


def _is_gathered(plan: Plan, slot: Slot, node: ast.expr) -> bool:
    """Whether a read is of what an evaluation loop gathers before."""
    if isinstance(slot.owner, ast.ClassDef):
        return False
    start = plan.tree.start(node)
    for evaluation in plan.evaluations:
        for stmt, tensors, numbers in evaluation.picked.unpacked if evaluation.problem is None else ():
            if slot.root in (*tensors, *numbers) and plan.script.scope_of(stmt) is slot.owner:
                if start > plan.tree.end(stmt):
                    return True
        place = evaluation.after or evaluation.before
        again = [name for name, _ in evaluation.sizes]
        if evaluation.problem is not None or place is None or slot.root not in (*evaluation.gathered, *again):
            continue
        if plan.script.scope_of(place) is slot.owner:
            afterwards = plan.tree.end(place) if evaluation.after is not None else plan.tree.start(place) - 1
            if start > afterwards:
                return True
    return False
