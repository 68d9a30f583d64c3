"""Whether a model that is at some place is one that prepare gets: before it came there, or where it goes from there.

def load(path):
    net = build()                   a factory makes the trained model, too,
    return net.to(device)           but this one goes to `tested` alone, which nothing prepares

tested = load(path)
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from accelify.analysis.planning.sites import Item, PrepareSite
from accelify.analysis.scopes import Scope, handed_to
from accelify.analysis.script import ScriptModel
from accelify.analysis.statements.assignments import gives_back, is_none
from accelify.analysis.statements.giving import hands_through
from accelify.analysis.syntax import dotted
from accelify.analysis.values import Class, Entity

# A variable of a scope, or an attribute of the objects of a class, by its name.
_Place = tuple[Scope | Class, str]
# Which places and values get to prepare, as far as that is known.
_Known = dict[object, bool]


class WaysToPrepare:
    """Follows models from place to place: over assignments, arguments and results.

    Args:
        script: its model.
        sites: the prepare statements.
    """

    def __init__(self, script: ScriptModel, sites: Iterable[PrepareSite]) -> None:
        self.script = script
        self.tree = script.tree
        self._items: list[tuple[PrepareSite, Item]] = [(site, item) for site in sites for item in site.items]

    def lead_there(self, node: ast.expr, model: Entity) -> bool:
        """Whether prepare gets the model that an expression is, on every way that it comes there or goes on.

        Parts of a prepared model, and the elements of containers, are prepared with these, whatever way they take.
        """
        items = [item for _, item in self._items if model in item.entities]
        if not items or any(item.container is not None for item in items):
            return True
        return self._goes(node, model, {}) or self._came(node, model, set())

    # -- on from a place

    def _goes(self, node: ast.expr, model: Entity, known: _Known) -> bool:
        """Whether the model that is an expression's value gets to prepare under its name, or where it goes on."""
        place = self._place(node)
        if place is not None:
            return self._is_prepared(place, model) or self._place_goes(place, model, known)
        return self._value_goes(node, model, known)

    def _place_goes(self, place: _Place, model: Entity, known: _Known) -> bool:
        if place not in known:
            known[place] = False  # what comes around gets nowhere by that
            known[place] = any(
                model in self.script.entities(read) and self._value_goes(read, model, known)
                for read in self._reads(place)
            )
        return known[place]

    def _value_goes(self, node: ast.expr, model: Entity, known: _Known) -> bool:
        if node not in known:
            known[node] = False
            known[node] = self._goes_from(node, model, known)
        return known[node]

    def _goes_from(self, node: ast.expr, model: Entity, known: _Known) -> bool:
        parent = self.tree.parent(node)
        if isinstance(parent, ast.keyword):
            parent = self.tree.parent(parent)
        if isinstance(parent, ast.Attribute):
            call = self.tree.parent(parent)  # `net.to(device)` is the model itself
            called = isinstance(call, ast.Call) and call.func is parent
            return called and self._passes_on(call, model, known)
        if isinstance(parent, ast.Call):
            return self._passes_on(parent, model, known) or any(
                argument is node and self._place_prepared_or_goes((callee, name), model, known)
                for callee in self.script.callees(parent)
                for argument, name in handed_to(parent, callee)
            )
        if isinstance(parent, (ast.IfExp, ast.NamedExpr, ast.BoolOp, ast.Await)):
            return self._value_goes(parent, model, known)
        if isinstance(parent, ast.Tuple):
            index, whole = parent.elts.index(node), self.tree.parent(parent)
            return self._part_goes(parent, whole, index, model, known)
        if isinstance(parent, ast.Return):
            return self._returned(node, None, model, known)
        if isinstance(parent, (ast.Assign, ast.AnnAssign)):
            targets = parent.targets if isinstance(parent, ast.Assign) else [parent.target]
            return any(self._goes(target, model, known) for target in targets)
        return False

    def _passes_on(self, call: ast.AST | None, model: Entity, known: _Known) -> bool:
        """Whether a call gives back the model that it gets, which gets to prepare from there."""
        same = isinstance(call, ast.Call) and model in self.script.entities(call)
        return same and isinstance(call, ast.Call) and self._value_goes(call, model, known)

    def _place_prepared_or_goes(self, place: _Place, model: Entity, known: _Known) -> bool:
        return self._is_prepared(place, model) or self._place_goes(place, model, known)

    def _part_goes(
        self, node: ast.AST, parent: ast.AST | None, index: int, model: Entity, known: _Known
    ) -> bool:
        """Whether a part of a tuple gets to prepare: `return net, device`, `net, device = load()`."""
        if isinstance(parent, ast.Return):
            return self._returned(parent, index, model, known)
        if not isinstance(parent, ast.Assign):
            return False
        return any(
            self._goes(target.elts[index], model, known)
            if isinstance(target, ast.Tuple) and index < len(target.elts)
            else self._goes(target, model, known)
            for target in parent.targets
        )

    def _returned(self, node: ast.AST, index: int | None, model: Entity, known: _Known) -> bool:
        """Whether each call of the function that returns the model gets it to prepare."""
        scope = self.script.scope_of(node)
        calls = self.script.callers(scope) if scope.kind == "function" else []
        return bool(calls) and all(
            self._value_goes(call, model, known)
            if index is None
            else self._part_goes(call, self.tree.parent(call), index, model, known)
            for call in calls
        )

    # -- back from a place

    def _came(self, node: ast.expr, model: Entity, seen: set[object]) -> bool:
        """Whether prepare had the model that is an expression's value, on each way that it may have come."""
        place = self._place(node)
        if place is not None:
            return self._is_prepared(place, model) or self._place_came(place, model, seen)
        if isinstance(node, ast.IfExp):
            return all(
                self._came(one, model, seen)
                for one in (node.body, node.orelse)
                if model in self.script.entities(one)
            )
        if not isinstance(node, ast.Call):
            return False
        given = [*node.args, *[kw.value for kw in node.keywords]]
        callees = self.script.callees(node)
        if callees:
            results = [one for callee in callees for one in self._results(callee, model)]
            return bool(results) and all(self._came(one, model, seen) for one in results)
        receiver = [node.func.value] if isinstance(node.func, ast.Attribute) else []
        through = [one for one in (*receiver, *given) if model in self.script.entities(one)]
        return bool(through) and all(self._came(one, model, seen) for one in through)

    def _place_came(self, place: _Place, model: Entity, seen: set[object]) -> bool:
        if place in seen:
            return True  # what comes around comes from elsewhere first
        seen.add(place)
        owner, name = place
        ways: list[ast.expr] = []
        if isinstance(owner, Scope) and owner.takes(name):
            for call in self.script.callers(owner):
                ways += [argument for argument, taken in handed_to(call, owner) if taken == name]
        for holder in self.script.holders:
            if holder.name == name and owner in (holder.scope, holder.cls):
                for stmt, _ in holder.assignments:
                    value = getattr(stmt, "value", None)
                    if isinstance(value, ast.expr):
                        ways.append(value)
        ways = [way for way in ways if model in self.script.entities(way)]
        return bool(ways) and all(self._came(way, model, seen) for way in ways)

    def _results(self, callee: Scope, model: Entity) -> Iterator[ast.expr]:
        for stmt in callee.of_type(ast.Return):
            values = stmt.value.elts if isinstance(stmt.value, ast.Tuple) else [stmt.value]
            yield from (one for one in values if one is not None and model in self.script.entities(one))

    # -- places

    def _place(self, node: ast.expr) -> _Place | None:
        scope = self.script.scope_of(node)
        if isinstance(node, ast.Name):
            owner = scope.resolve(node.id)
            return (owner, node.id) if owner is not None else None
        if isinstance(node, ast.Attribute):
            classes = [t.cls for t in self.script.entities(node.value) if t.cls is not None]
            if classes:
                return (min(classes, key=lambda cls: (len(cls.ancestry()), cls.scope.name)), node.attr)
            text = dotted(node)
            owner = scope.resolve(text.partition(".")[0]) if text is not None else None
            return (owner, text) if owner is not None and text is not None else None
        return None

    def _reads(self, place: _Place) -> Iterable[ast.expr]:
        owner, name = place
        if isinstance(owner, Scope):
            return self.script.reads(name, owner)
        return [
            node
            for node in self.tree.nodes(ast.Attribute)
            if node.attr == name
            and isinstance(node.ctx, ast.Load)
            and self._is_same(self._place(node), place)
        ]

    @staticmethod
    def _is_same(one: _Place | None, other: _Place) -> bool:
        if one is None or one[1] != other[1]:
            return False
        first, second = one[0], other[0]
        if isinstance(first, Class) and isinstance(second, Class):
            return first in second.ancestry() or second in first.ancestry()
        return first is second

    def _is_prepared(self, place: _Place, model: Entity) -> bool:
        """Whether a name is prepared, after each statement that makes the model under this name."""
        found = [
            (site, item)
            for site, item in self._items
            if model in item.entities
            and self._is_same((item.holder.cls or item.holder.scope or item.scope, item.holder.name), place)
        ]
        made = {stmt for _, item in found for stmt in item.creations}
        made = {s for s in made if not hands_through(self.script, s, model) and not is_none(s)}
        return bool(found) and all(
            any(self._comes_by(stmt, site) for site, _ in found)
            for stmt in made
            if not gives_back(stmt, place[1])
        )

    def _comes_by(self, stmt: ast.stmt, site: PrepareSite) -> bool:
        """Whether the prepare of a site follows a statement in its block, or around it."""
        if self.tree.end(site.after) < self.tree.start(stmt):
            return False
        around = self.tree.block_of(site.after)[2]
        return self.tree.is_within(stmt, around)


__all__ = ["WaysToPrepare"]
