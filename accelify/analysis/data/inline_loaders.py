"""Loaders without a variable, which are prepared where they are made: `for batch in DataLoader(data)`."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Set

from accelify.analysis import values as v
from accelify.analysis.metrics.evaluation_loop import EvaluationLoop
from accelify.analysis.script import ScriptModel
from accelify.analysis.values import Entity


def loader_sites(script: ScriptModel, loader: Entity) -> list[ast.Call]:
    """The calls to wrap in prepare for a loader that is put into a dictionary, say, or used where it is made."""
    if not isinstance(loader.site, ast.Call):
        return []
    sites = [loader.site] if loader.module in script.modules else handed_on_at_once(script, loader)
    return [site for site in sites if not script.tree.in_fstring(site)]


def handed_on_at_once(script: ScriptModel, loader: Entity) -> list[ast.Call]:
    """The calls by which other modules make a loader that the script stores nowhere: `train(get_loader())`."""
    return [
        call
        for call in script.calls()
        if any(script.interpreter.module_of(s) not in script.modules for s in script.callees(call))
        and loader in script.values(call)
        and all(isinstance(w, Entity) and w.kind == v.LOADER for w in script.values(call))
    ]


def loops_over_sites(
    script: ScriptModel, evaluations: Iterable[EvaluationLoop], sites: Set[ast.Call]
) -> set[ast.AST]:
    """The evaluation loops that shard loaders made at some places, and that nothing trains with.

    Args:
        script: its model.
        evaluations: its loops that evaluate.
        sites: the calls that make the loaders.
    """
    return {
        one.loop
        for one in evaluations
        if one.problem is None and not one.loaders & script.training_loaders
        if any(sites & {loader.site, *handed_on_at_once(script, loader)} for loader in one.loaders)
    }
