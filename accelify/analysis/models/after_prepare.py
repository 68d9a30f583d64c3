"""Whether something runs when prepare has run: of anything, or of some models and loaders."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Set

from accelify.analysis.planning.sites import PrepareSite
from accelify.analysis.scopes import Scope
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import Node
from accelify.analysis.values import Entity


def is_after_prepare(
    script: ScriptModel,
    sites: Iterable[PrepareSite],
    node: Node,
    entities: Set[Entity] = frozenset(),
    seen: frozenset[Scope] = frozenset(),
) -> bool:
    """Whether a node runs after the prepare of its scope (or in a function, which runs later).

    With `entities`, only where these are prepared counts.
    """
    sites = [s for s in sites if not entities or any(entities & item.entities for item in s.items)]
    scope = script.scope_of(node)
    place = script.tree.start(node)
    own = [s for s in sites if s.scope is scope]
    if own:
        ends = [script.tree.end(s.after) for s in own if place > script.tree.end(s.after)]
        return bool(ends) and not _made_anew(script, own, node, entities, max(ends))
    if scope.kind == "module":
        return True
    if scope in script.training_scopes or scope in seen:
        return True
    calls = script.callers(scope)
    return not calls or any(is_after_prepare(script, sites, c, entities, seen | {scope}) for c in calls)


def _made_anew(
    script: ScriptModel, sites: list[PrepareSite], node: Node, entities: Set[Entity], prepared: int
) -> bool:
    """Whether the name refers to another object by then, for which prepare is still to come."""
    around = set(script.tree.ancestors(node))
    return any(
        prepared < script.tree.start(stmt) < script.tree.start(node)
        and script.tree.parent(stmt) in around
        and stmt not in around
        for site in sites
        for item in site.items
        if entities & item.entities
        for stmt in item.creations
        if _makes(script, stmt, entities)
    )


def _makes(script: ScriptModel, stmt: ast.stmt, entities: Set[Entity]) -> bool:
    """Whether a statement makes an `Entity` and does not just pass one through: `net = train(net)` returns the same."""
    value = getattr(stmt, "value", None)
    return isinstance(value, ast.Call) and not any(
        entities & script.entities(given) for given in [*value.args, *[kw.value for kw in value.keywords]]
    )
