"""Optimizers without a variable, which are prepared where they are made: `fit(net, SGD(net.parameters()))`."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from accelify.analysis import values as v
from accelify.analysis.planning.sites import PrepareSite
from accelify.analysis.script import ScriptModel
from accelify.analysis.values import Entity


def optimizer_sites(script: ScriptModel, optimizer: Entity) -> list[ast.Call]:
    """The constructor of an optimizer, where it is the argument of a call or an entry of a dictionary."""
    tree, site = script.tree, optimizer.site
    if not isinstance(site, ast.Call) or optimizer.module not in script.modules or tree.parent(site) is None:
        return []
    for ancestor in tree.ancestors(site):
        if isinstance(
            ancestor, (ast.Lambda, ast.comprehension, ast.ListComp, ast.GeneratorExp, ast.DictComp)
        ):
            return []
        if isinstance(ancestor, ast.stmt):
            break
    parent = tree.parent(site)
    parent = tree.parent(parent) if isinstance(parent, ast.keyword) else parent
    given = isinstance(parent, ast.Dict) or (isinstance(parent, ast.Call) and parent.func is not site)
    return [site] if given and not tree.in_fstring(site) else []


def made_too_early(
    script: ScriptModel, sites: Iterable[PrepareSite], prepared: set[Entity], inline: Iterable[ast.Call]
) -> list[Entity]:
    """The optimizers prepared where they are made whose models are not prepared by a statement in front of that."""
    wrapped = set(inline)
    found: list[Entity] = []
    for optimizer in sorted(prepared, key=Entity.place):
        if optimizer.kind != v.OPTIMIZER or optimizer.site not in wrapped:
            continue
        stmt = script.tree.statement(optimizer.site)
        before = {
            entity
            for site in sites
            if site.scope is script.scope_of(stmt) and script.tree.is_after(stmt, site.after)
            for item in site.items
            if item.container is None
            for entity in item.entities
        }
        models = script.outermost(optimizer.link("models"))
        if not models or not models <= before:
            found.append(optimizer)
    return found
