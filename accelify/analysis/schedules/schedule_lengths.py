"""Lengths of loaders that schedules are made from, and whether they are those of one process by then.

A schedule is often made by a helper, in the script or in a module that is not converted, which gets the number of
steps. So a length is looked for in all modules of the program, and reported with the places in the script that use it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence, Set
from typing import NamedTuple

from accelify.analysis import values as v
from accelify.analysis.planning.sites import PrepareSite
from accelify.analysis.program import Module
from accelify.analysis.scopes import Scope
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import Node, call_argument, dotted, walk
from accelify.analysis.values import Entity

_FARTHEST = 5


class Length(NamedTuple):
    """A `len(...)` and the module that it is in."""

    call: ast.Call
    module: Module

    def loaders(self, script: ScriptModel) -> set[Entity]:
        """The loaders whose length it can be."""
        scope = script.scope_in(self.module, self.call)
        contained = script.interpreter.evaluate(self.module, scope, self.call.args[0])
        return {w for w in contained if isinstance(w, Entity) and w.kind == v.LOADER}

    def places(self, script: ScriptModel) -> list[ast.Call]:
        """Where the script takes it: the call itself, or those that lead to it in a module that is not converted."""
        if self.module in script.modules:
            return [self.call]
        found: list[ast.Call] = []
        queue, seen = [self.module.scopes.of(self.call)], set[Scope]()
        while queue:
            scope = queue.pop()
            if scope in seen:
                continue
            seen.add(scope)
            for module, call in script.interpreter.callers.get(scope, []):
                if module in script.modules:
                    found.append(call)
                else:
                    queue.append(module.scopes.of(call))
        return found


def lengths_read_by(script: ScriptModel, module: Module, *read: Node) -> Iterator[Length]:
    """The lengths that expressions are computed from: here, in names, in functions, in what callers give."""
    queue: list[tuple[Node, Module, int]] = [(node, module, 0) for node in read]
    seen: set[Node] = set()
    while queue:
        node, home, far = queue.pop()
        if node in seen:
            continue
        seen.add(node)
        for inner in walk(node):
            if isinstance(inner, ast.Call) and dotted(inner.func) == "len" and len(inner.args) == 1:
                yield Length(inner, home)
            elif isinstance(inner, (ast.Name, ast.Attribute)) and far < _FARTHEST:
                queue += [(value, where, far + 1) for value, where in given_to(script, home, inner)]


def lengths_of(script: ScriptModel, scheduler: Entity) -> Iterator[Length]:
    """The lengths that a schedule is made from."""
    site, module = scheduler.site, scheduler.module
    if not isinstance(site, ast.Call) or module is None:
        return
    given = [*site.args, *[kw.value for kw in site.keywords]]
    yield from lengths_read_by(script, module, *given)
    scope = script.scope_in(module, site)
    for one in (inner for value in given for inner in getattr(value, "elts", [value])):
        # A function that gives the rate of each step counts on what it finds around it.
        for function in script.interpreter.evaluate(module, scope, one):
            if isinstance(function, v.Function) and isinstance(function.scope.node, ast.FunctionDef):
                yield from lengths_read_by(script, function.module, *function.scope.node.body)


def given_to(
    script: ScriptModel, module: Module, read: ast.Name | ast.Attribute
) -> Iterator[tuple[Node, Module]]:
    """What a name holds: what its scope assigns it, what callers give."""
    name = dotted(read)
    if name is None or not isinstance(read.ctx, ast.Load):
        return
    scope = script.scope_in(module, read)
    owner = scope.resolve(name) if isinstance(read, ast.Name) else scope
    if owner is None:
        return
    for stmt in module.tree.assigns(name):
        if script.scope_in(module, stmt) is owner:
            yield stmt.value, module
    if owner.kind != "function" or name == owner.self_name():
        return
    positional = owner.positional()
    if name not in [a.arg for a in owner.parameters()]:
        return
    index = positional.index(name) - (owner.self_name() is not None) if name in positional else -1
    for where, caller in script.interpreter.callers.get(owner, []):
        given = call_argument(caller, index, name)
        if given is not None:
            yield given, where


def runs_prepared(
    script: ScriptModel,
    sites: Sequence[PrepareSite],
    entities: Set[Entity],
    node: Node,
    seen: frozenset[Scope] = frozenset(),
) -> bool:
    """Whether a node runs when some `Entity` objects are prepared already."""
    chosen = [s for s in sites if any(entities & item.entities for item in s.items)]
    scope = script.scope_of(node)
    own = [s for s in chosen if s.scope is scope]
    if own or not chosen:
        return not chosen or any(script.tree.is_after(node, s.after) for s in own)
    owner = scope.owner_class
    if owner is not None and not scope.name.endswith("__init__"):
        if any(s.scope.owner_class is owner and s.scope.name.endswith("__init__") for s in chosen):
            return True  # an object's methods run when it is made
    calls = script.callers(scope) if scope.kind == "function" and scope not in seen else []
    return bool(calls) and all(runs_prepared(script, chosen, entities, c, seen | {scope}) for c in calls)


def is_bound_anew(
    script: ScriptModel, sites: Sequence[PrepareSite], entities: Set[Entity], length: Length
) -> bool:
    """Whether a function that a schedule calls at each step asks for a loader by a name that prepare binds anew."""
    measured = length.call.args[0]
    name = measured.attr if isinstance(measured, ast.Attribute) else dotted(measured)
    if name is None or length.module not in script.modules or not _is_called_later(script, length.call, name):
        return False
    owner = script.scope_of(length.call).resolve(name) if isinstance(measured, ast.Name) else None
    return any(
        entities & item.entities
        and item.holder.name == name
        and (site.scope is owner if item.holder.cls is None else owner is None)
        for site in sites
        for item in site.items
    )


def _is_called_later(script: ScriptModel, node: ast.AST, name: str) -> bool:
    """Whether it stands in a lambda, or in a function that the script only passes on, and asks for a name of others."""
    below = node
    for outer in script.tree.ancestors(node):
        if isinstance(outer, ast.Lambda) and below is outer.body:
            given = [*outer.args.posonlyargs, *outer.args.args, *outer.args.kwonlyargs]
            return name not in [one.arg for one in given]
        if isinstance(outer, ast.FunctionDef) and below in outer.body:
            scope = script.scope_of(node)
            return not script.callers(scope) and name not in [one.arg for one in scope.parameters()]
        below = outer
    return False
