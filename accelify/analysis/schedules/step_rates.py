"""Learning rates that a script sets itself, from a count of steps: `group["lr"] = base * step ** -0.5`.

Of N processes each makes 1/N of the steps of an epoch, and such a rate follows its course N times slower. One that is
set from epochs, or from the share of an epoch that is done (steps over the length of the loader), does not.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from accelify.analysis.schedules.counted_steps import CountedSteps
from accelify.analysis.scopes import Scope
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import is_constant, target_names, walk
from accelify.analysis.training_loops import Loop

_GROUPS = b"param_groups"


class StepRate(NamedTuple):
    """A learning rate that is set once for each batch.

    `place` is the statement that sets it, or where that is in a module which is not converted, the call that runs
    it; `counter` what it is counted by, None where it is changed by a factor each time. `of_batches` is whether that
    counts samples or tokens.
    """

    place: ast.stmt | ast.Call
    calls: tuple[ast.Call, ...]
    counter: str | None
    of_batches: bool = False


def step_rates(script: ScriptModel, loop: Loop) -> Iterator[StepRate]:
    """The learning rates that one function each, or a loop over batches itself, sets by counting steps."""
    if not any(m.tree.mentions(_GROUPS) for m in (*script.modules, *script.program.modules.values())):
        return
    steps = CountedSteps(script, loop)
    if steps.counted_by_length(script.enclosing_loops(loop)):
        return
    for scope, chain in steps.reached.items():
        module = steps.module(scope)
        for stmt in steps.nodes(scope):
            if not _sets_rate(stmt, scope):
                continue
            assert isinstance(stmt, (ast.Assign, ast.AugAssign))
            here = module in script.modules
            found = steps.counter(stmt, scope, chain)
            if found is not None:
                yield StepRate(stmt if here else chain[0], chain, found or None, found in steps.of_batches)
                break


def _sets_rate(stmt: ast.AST, scope: Scope) -> bool:
    """`group["lr"] = ...` in a loop over `optimizer.param_groups`, or of one of them by its place."""
    if not isinstance(stmt, (ast.Assign, ast.AugAssign)):
        return False
    target = stmt.targets[0] if isinstance(stmt, ast.Assign) else stmt.target
    if not isinstance(target, ast.Subscript) or not is_constant(target.slice, "lr"):
        return False
    group = target.value
    if isinstance(group, ast.Name):
        return any(
            isinstance(n, (ast.For, ast.comprehension))
            and group.id in target_names(n.target)
            and any(isinstance(a, ast.Attribute) and a.attr == "param_groups" for a in walk(n.iter))
            for n in scope.nodes
        )
    return any(isinstance(a, ast.Attribute) and a.attr == "param_groups" for a in walk(group))
