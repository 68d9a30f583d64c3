"""Epochs that are counted by a number of steps: `for epoch in range(STEPS // len(loader))`.

Where the loader has 1/N of its batches by then, N times the epochs are made, and as many steps as before. A schedule
that steps once a batch is right as it is then; prepared, it would advance by the batches of all processes, N times as
fast.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence, Set
from typing import NamedTuple

from accelify.analysis import values as v
from accelify.analysis.planning.sites import PrepareSite
from accelify.analysis.schedules.schedule_lengths import lengths_read_by, runs_prepared
from accelify.analysis.schedules.steps import measured_limits
from accelify.analysis.scopes import Scope
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import dotted, walk
from accelify.analysis.training_loops import Loop
from accelify.analysis.values import Entity

_FARTHEST = 2


class StepRounds(NamedTuple):
    """A loop over batches that is gone through as often as a number of steps, `division`, asks for.

    `sure` is whether nothing else can be the number of rounds, such as an option.
    """

    loop: Loop
    division: ast.BinOp
    sure: bool


def step_rounds(
    script: ScriptModel,
    prepared: Set[Entity],
    is_prepared: Callable[[ast.Call, set[Entity]], bool],
) -> Iterator[StepRounds]:
    """The loops that train on prepared loaders whose rounds are counted by steps.

    Args:
        script: its model.
        prepared: what is prepared.
        is_prepared: whether some loaders are prepared when a call runs.
    """
    for loop, loaders in script.loader_loops:
        if not loaders or not loaders <= prepared or not script.trains(loop):
            continue
        for outer in _loops_of_epochs(script, loop):
            for division, sure in _divisions(script, _end_of(outer.iter)):
                lengths = lengths_read_by(script, script.module_of(division), division.right)
                own = [
                    length
                    for length in lengths
                    if length.loaders(script) & loaders
                    and all(is_prepared(place, loaders) for place in length.places(script))
                ]
                if not own:
                    continue
                # Steps that are epochs of the same loader, or of its samples.
                counted = lengths_read_by(script, script.module_of(division), division.left)
                if any(length.loaders(script) & loaders for length in counted):
                    continue
                if not any(counts_samples(script, prepared, inner) for inner in walk(division.left)):
                    yield StepRounds(loop, division, sure)


def loops_of_fixed_steps(
    script: ScriptModel, sites: Sequence[PrepareSite], prepared: Set[Entity]
) -> set[Loop]:
    """The training loops that make as many steps as in the original: nothing but steps counts their rounds.

    `len(loader) * epochs` counts steps, too, where it is taken before the loader is prepared.
    """

    def is_prepared(place: ast.Call, loaders: set[Entity]) -> bool:
        return runs_prepared(script, sites, loaders, place)

    found = {rounds.loop for rounds in step_rounds(script, prepared, is_prepared) if rounds.sure}
    for loop, loaders in script.loader_loops:
        if loaders and loaders <= prepared and script.trains(loop):
            measured = [p for length in measured_limits(script, loop.body[0]) for p in length.places(script)]
            if any(not is_prepared(place, loaders) for place in measured):
                found.add(loop)
    return found


def stepped_in(script: ScriptModel, loops: Set[Loop]) -> set[Entity]:
    """The schedules that step in some loops."""
    return {
        scheduler
        for call in (script.calls() if loops else ())
        if isinstance(call.func, ast.Attribute) and call.func.attr == "step"
        for scheduler in script.entities(call.func.value, v.SCHEDULER)
        if loops & _loops_around(script, call)
    }


def counts_samples(script: ScriptModel, prepared: Set[Entity], node: ast.AST) -> bool:
    """`len(data)` or `data.__len__()` of what a prepared loader reads, or of its sampler."""
    measured = _measured(node)
    if measured is None:
        return False
    root: ast.expr = measured
    while isinstance(root, ast.Attribute):
        root = root.value
        if script.entities(root, v.LOADER) & prepared:
            return True
    return script.is_a(measured, v.DATASET)


def _measured(node: ast.AST) -> ast.expr | None:
    if not isinstance(node, ast.Call):
        return None
    if isinstance(node.func, ast.Attribute) and node.func.attr == "__len__" and not node.args:
        return node.func.value
    return node.args[0] if dotted(node.func) == "len" and len(node.args) == 1 else None


def _loops_around(script: ScriptModel, node: ast.AST, seen: frozenset[Scope] = frozenset()) -> set[ast.AST]:
    """The loops that a node runs in, in its function or in those that call it."""
    found: set[ast.AST] = set(script.enclosing_loops(node))
    scope = script.scope_of(node)
    for call in script.callers(scope) if scope.kind == "function" and scope not in seen else ():
        found |= _loops_around(script, call, seen | {scope})
    return found


def _end_of(iterated: ast.expr) -> ast.expr:
    """What ends a loop by a number: where `range(step // len(loader), epochs)` begins makes no epoch more."""
    if isinstance(iterated, ast.Call) and len(iterated.args) > 1:
        if (dotted(iterated.func) or "").rsplit(".", 1)[-1] in ("range", "trange"):
            return iterated.args[1]
    return iterated


def _loops_of_epochs(
    script: ScriptModel, loop: ast.AST, seen: frozenset[Scope] = frozenset()
) -> Iterator[ast.For]:
    """The loops by a number that go over a loop again and again, in its function or in those that call it."""
    for outer in script.enclosing_loops(loop):
        if outer is not loop and isinstance(outer, ast.For):
            yield outer
    scope = script.scope_of(loop)
    if scope.kind == "function" and scope not in seen:
        for call in script.callers(scope):
            yield from _loops_of_epochs(script, call, seen | {scope})


def _divisions(
    script: ScriptModel, number: ast.expr, far: int = 0, sure: bool = True
) -> Iterator[tuple[ast.BinOp, bool]]:
    """The divisions from which a number of rounds is computed, in the loop itself or in an assignment to its name.

    Each with whether it is always used: an attribute of options may be set otherwise.
    """
    sure = sure and not any(
        isinstance(n, (ast.IfExp, ast.BoolOp)) or (isinstance(n, ast.Call) and dotted(n.func) == "min")
        for n in walk(number)
    )
    for node in walk(number):
        if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Div, ast.FloorDiv)):
            yield node, sure
        name = dotted(node) if isinstance(node, (ast.Name, ast.Attribute)) else None
        if name is None or far > _FARTHEST:
            continue
        scope = script.scope_of(node)
        owner = scope.resolve(name.split(".")[0])
        given = [
            stmt
            for stmt in script.tree.assigns(name)
            if script.scope_of(stmt).resolve(name.split(".")[0]) is owner
        ]
        alone = len(given) == 1 and (isinstance(node, ast.Name) or name == f"{scope.self_name()}.{node.attr}")
        for stmt in given:
            yield from _divisions(script, stmt.value, far + 1, sure and alone)
