"""Runs that follow each other, each with another model: folds, seeds, grids of options."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from accelify.analysis.planning.anchors import Anchor
from accelify.analysis.planning.sites import PrepareSite
from accelify.analysis.script import ScriptModel
from accelify.analysis.values import MODEL, OPTIMIZER


def begins_run(
    script: ScriptModel, sites: Sequence[PrepareSite], anchor: Anchor | None
) -> PrepareSite | None:
    """The first of the prepares of a run, where one Accelerator sees several runs; None where it sees one.

    All that is prepared is made again in each of them, and trained there: in the rounds of a loop, or in a function
    that a loop calls. By then nothing that an earlier run prepared is trained on.

    Args:
        script: its model.
        sites: all that is prepared.
        anchor: where the Accelerator is made.
    """
    if not sites or anchor is None or len({site.scope for site in sites}) > 1:
        return None
    tree, scope = script.tree, sites[0].scope
    first = min(sites, key=lambda site: tree.start(site.after))
    if not {MODEL, OPTIMIZER} <= {item.kind for site in sites for item in site.items}:
        return None
    block = tree.block_of(first.after)[2]
    made = anchor.before or anchor.after
    around = script.enclosing_loops(first.after)
    if around and block is around[0].body:
        loop = around[0]
        within = made is not None and (made is loop or loop in tree.ancestors(made))
        if script.trains(loop) and not within and all(loop in tree.ancestors(s.after) for s in sites):
            return first
        return None
    function = scope.node
    if not isinstance(function, ast.FunctionDef) or scope.kind != "function" or scope.is_method or around:
        return None
    if block is not function.body or anchor.root is scope or not any(map(script.trains, function.body)):
        return None
    return first if any(script.enclosing_loops(call) for call in script.callers(scope)) else None
