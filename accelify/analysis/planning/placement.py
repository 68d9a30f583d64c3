"""The place of `prepare(...)`: in which block, after which statement, with which names."""

from __future__ import annotations

import ast
from collections.abc import Set
from typing import Any

from accelify.analysis import values as v
from accelify.analysis.models.only_evaluated import is_made_for_batches, is_only_counted, is_only_evaluated
from accelify.analysis.planning.every_path import on_every_path, reads_of_attribute
from accelify.analysis.planning.item_statements import LOOKS, ItemStatements
from accelify.analysis.planning.sites import Item, PrepareSite
from accelify.analysis.scopes import Scope
from accelify.analysis.script import Holder, ScriptModel
from accelify.analysis.statements.assigned_objects import (
    comes_trained,
    gives,
    hands_through,
    hangs_on,
    is_looked_at,
)
from accelify.analysis.statements.assignments import (
    assigns_always,
    blocks,
    gives_back,
    is_alias,
    is_none,
    is_unpacked,
    may_leave,
    stands_in,
    takes_to_host,
)
from accelify.analysis.syntax import dotted
from accelify.analysis.trained import is_in_model
from accelify.analysis.values import Class, Entity


class Placement(ItemStatements):
    """Finds the scope and place of everything that is to be prepared."""

    def __init__(self, script: ScriptModel, wrapped: frozenset[str] = frozenset()) -> None:
        super().__init__(script)
        # Names under which a model was wrapped by hand: of several names of one model, those that train.
        self.wrapped = wrapped
        # The names of models of one making with another that is trained, which are evaluated alone.
        self.evaluated: list[Holder] = []

    def home(self, entity: Entity, kind: str) -> Item | None:
        """The name under which an `Entity` is prepared: the one nearest to the module's code."""
        best: tuple[int, int, int, Item] | None = None
        given = kind == v.LOADER or any(
            gives(self.script, s, entity) and not is_alias(s)
            for holder in self.script.holders_of(entity)
            for s, _ in holder.assignments
        )
        for holder in self.script.holders_of(entity):
            if holder.cls is not None and _is_exception(holder.cls):
                continue  # it stores a reference, and trains nothing
            # The attributes of a module are its parts, but an optimizer it keeps is not a part.
            if kind in (v.MODEL, v.LOADER):
                if holder.scope is not None and is_in_model(self.script, holder.scope):
                    if not self._is_of_its_own(entity, holder.scope):
                        continue
                if holder.cls is not None and self.script.interpreter.kind_of_class(holder.cls) == v.MODEL:
                    continue
            scopes = {scope for _, scope in holder.assignments}
            for scope in scopes:
                depth = self.script.depth(scope)
                made = [s for s, where in holder.assignments if where is scope and not is_none(s)]
                every = [s for s in made if not comes_trained(self.script, s, entity)]
                if not every or (given and not any(gives(self.script, s, entity) for s in every)):
                    continue
                if len(every) < len(made) and all(
                    hands_through(self.script, s, entity) for s in every if gives(self.script, s, entity)
                ):
                    continue  # what came here trained only goes on through a function: `model = resume(model)`
                if kind == v.LOADER:
                    # The name may be used again for one that is not sharded.
                    every = [s for s in every if gives(self.script, s, entity)]
                # `model = model.train()` makes nothing new.
                handed = [s for s in every if gives_back(s, holder.name)]
                last = max((self.tree.start(s) for s in handed), default=0)
                creations = [
                    s
                    for s in every
                    if s not in handed
                    # What stays on the host from here on is the script's bare model.
                    and not (takes_to_host(s, holder.name) and self.tree.start(s) > last)
                ]
                if not creations and kind == v.MODEL and self._is_made_elsewhere(holder, scope):
                    continue  # `self.net = DataParallel(self.net)` of one that a method made
                creations = creations or every
                if kind == v.MODEL and self._is_anothers_part(entity, holder, creations, scope):
                    continue
                if kind == v.OPTIMIZER and is_looked_at(self.script, holder, creations):
                    continue
                if kind != v.LOADER and all(self.containers.takes_out(s) for s in creations):
                    if not self.containers.only_chosen(creations):
                        continue  # one of several: they are prepared in their container
                item = Item(holder, kind, scope, creations, {entity})
                used = self._used(holder) + (holder.name in self.wrapped)
                rank = (depth, -used, creations[0].lineno)
                if best is None or rank < best[:3]:
                    best = (*rank, item)
        if best is None and kind != v.LOADER:
            return self._in_attribute_of_another(entity, kind)
        return best[3] if best else None

    def _is_anothers_part(
        self, entity: Entity, holder: Holder, creations: list[ast.stmt], scope: Scope
    ) -> bool:
        """Whether a name was read from an attribute that is assigned this `Entity` later: `source = net.body`."""
        if len(holder.entities) < 2 or not all(
            isinstance(getattr(s, "value", None), ast.Attribute) for s in creations
        ):
            return False
        return any(
            where is scope and not is_alias(s) and gives(self.script, s, entity)
            for other in self.script.holders_of(entity)
            if other.entities == {entity}
            for s, where in other.assignments
        )

    def _is_made_elsewhere(self, holder: Holder, scope: Scope) -> bool:
        """Whether another method of the class makes what a scope only assigns back to its attribute."""
        return holder.cls is not None and any(
            where is not scope and isinstance(getattr(s, "value", None), ast.Call) and not is_alias(s)
            for s, where in holder.assignments
            if not gives_back(s, holder.name)
        )

    def _is_of_its_own(self, entity: Entity, scope: Scope) -> bool:
        """Whether a method of a module makes and trains something that is no part of the module."""
        site = entity.site
        if not isinstance(site, ast.Call) or self.tree.parent(site) is None:
            return False
        return (
            scope in self.script.training_scopes
            and self.script.scope_of(site) is scope
            and all(holder.cls is None for holder in self.script.holders_of(entity))
        )

    def _in_attribute_of_another(self, entity: Entity, kind: str) -> Item | None:
        """The attribute of an object that refers to an `Entity` without a name: `options.optimizer`."""
        for holder in self.script.attributes_of_others:
            given = [
                (s, where)
                for s, where in holder.assignments
                if not is_none(s) and entity in holder.entities and gives(self.script, s, entity)
            ]
            if given:
                scope = min((where for _, where in given), key=self.script.depth)
                return Item(holder, kind, scope, [s for s, where in given if where is scope], {entity})
        for holder in self.script.parts_of_objects(entity):
            scopes = sorted({where for _, where in holder.assignments}, key=self.script.depth)
            if len(scopes) == 1 and not is_in_model(self.script, scopes[0]):
                return Item(holder, kind, scopes[0], [s for s, _ in holder.assignments], {entity})
        return None

    def homes(self, entity: Entity, kind: str) -> list[Item]:
        """All names under which `Entity` objects of one call are prepared: a factory called three times makes three."""
        best = self.home(entity, kind)
        if best is None:
            return []
        if kind == v.OPTIMIZER and not any(gives(self.script, s, entity) for s in best.creations):
            # `wrapper.inner = SGD(...)` from outside, which replaces the wrapper's argument.
            later = self._in_attribute_of_another(entity, kind)
            best = later if later is not None else best
        found = [best]
        if kind == v.LOADER and all(map(self._takes_part, best.creations)):
            others = self._taken_out_beside(best, entity)
            retained = self.container_home(entity, kind)
            if retained is not None and self.containers.is_only_element(retained.holder, entity):
                if others or self._is_read_unnamed(entity):
                    return [retained]
            found += others
        if all(is_alias(c) for c in best.creations):
            return found
        # One for each branch, where `net = first()` and `net = second()` are alternatives.
        makers = {maker for creation in best.creations for maker in self._makers(creation)}
        for holder in self.script.holders_of(entity):
            if (holder.cls is None) != (best.holder.cls is None):
                continue
            for scope in dict.fromkeys(where for _, where in holder.assignments):
                if holder is best.holder and scope is best.scope:
                    continue
                every = [s for s, where in holder.assignments if where is scope and not is_none(s)]
                creations = [s for s in every if not is_alias(s) and not gives_back(s, holder.name)]
                # A second name, which holds another model in its place at times: a copy to evaluate.
                second = any(is_alias(s) and gives(self.script, s, entity) for s in every)
                creations = [s for s in creations if not hangs_on(self.script, s, holder.name, entity)]
                if kind == v.LOADER or (kind == v.MODEL and second):
                    creations = [s for s in creations if gives(self.script, s, entity)]
                if scope is not best.scope:
                    # Another function or class that calls the same factory.
                    taken = holder.scope is scope and holder.name in scope.positional()
                    creations = [
                        s
                        for s in creations
                        if self._makers(s) & makers
                        # Of a parameter, a function that loads it only passes on what a caller prepared.
                        and not (taken and hands_through(self.script, s, entity))
                    ]
                if kind == v.MODEL and (
                    is_only_evaluated(self.script, holder, scope)
                    or is_only_counted(self.script, holder, scope, creations)
                    or is_made_for_batches(self.script, creations)
                ):
                    self.evaluated.append(holder)
                    continue
                if creations:
                    found.append(Item(holder, kind, scope, creations, {entity}))
        by_place = kind == v.LOADER and self.containers.only_by_place(
            entity, [c for i in found for c in i.creations]
        )
        return [] if by_place else found

    def _takes_part(self, stmt: ast.stmt) -> bool:
        return is_unpacked(stmt) or self.containers.takes_out(stmt)

    def _is_read_unnamed(self, entity: Entity) -> bool:
        """Whether a loader is read as an element of its container: `for x, y in loaders[0]`, `for one in loaders`."""
        targets = (loop.target for loop in self.tree.nodes(ast.For, ast.comprehension))
        read = (node for node in self.tree.nodes(ast.Subscript) if self._is_taken_on(self.tree.parent(node)))
        names = (node for node in targets if isinstance(node, ast.Name))
        return any(entity in self.script.entities(node) for node in (*read, *names))

    def _is_taken_on(self, reader: ast.AST | None) -> bool:
        looks = isinstance(reader, ast.Call) and dotted(reader.func) in LOOKS
        return not looks and not isinstance(reader, (ast.Assign, ast.AnnAssign, ast.Attribute))

    def _taken_out_beside(self, best: Item, entity: Entity) -> list[Item]:
        """The names that take loaders of the same making out of a container, where nothing else makes them one by one:
        beside the one in `train_loader, val_loader = loaders`, or in another function."""
        found = []
        for holder in self.script.holders_of(entity):
            for scope in dict.fromkeys(where for _, where in holder.assignments):
                stmts = [s for s, where in holder.assignments if where is scope and self._takes_part(s)]
                if (holder is not best.holder or scope is not best.scope) and stmts and holder.cls is None:
                    if scope is not best.scope or any(map(is_unpacked, stmts)):
                        found.append(Item(holder, best.kind, scope, stmts, {entity}))
        return found

    def is_only_evaluated(self, node: ast.expr) -> bool:
        """Whether a name is that of a model which is left unprepared, beside one of the same making."""
        return isinstance(node, ast.Name) and any(
            node.id == h.name and self.script.scope_of(node).resolve(node.id) is h.scope
            for h in self.evaluated
        )

    def loaded_with(self, items: list[Item]) -> list[Item]:
        """The models that are loaded by the same statement as an optimizer: `model, optimizer = torch.load(path)`."""
        models = [item for item in items if item.kind == v.MODEL]
        found: list[Item] = []
        for item in items if models else ():
            for stmt in item.creations if item.kind == v.OPTIMIZER else ():
                value = getattr(stmt, "value", None)
                if not isinstance(value, ast.Call) or not self._is_load(value):
                    continue
                found += [
                    Item(model.holder, v.MODEL, item.scope, [stmt], model.entities)
                    for model in models
                    if model.scope is not item.scope and any(s is stmt for s, _ in model.holder.assignments)
                ]
        return found

    def _is_load(self, call: ast.Call) -> bool:
        return self.script.qualname(call.func) in ("torch.load", "pickle.load", "dill.load")

    def _makers(self, stmt: ast.stmt) -> Set[Scope]:
        """The functions of the program that an assignment calls for what it assigns."""
        value = getattr(stmt, "value", None)
        return self.script.callees(value) if isinstance(value, ast.Call) else set()

    def container_home(self, entity: Entity, kind: str) -> Item | None:
        """The list, tuple or dictionary in which an `Entity` without a name is prepared."""
        best: tuple[int, int, Item] | None = None
        for holder in self.containers.holders_of(entity):
            form = self.containers.form(holder, kind)
            if form is None or (
                holder.cls is not None and self.script.interpreter.kind_of_class(holder.cls) == v.MODEL
            ):
                continue
            makings = self.containers.makings(holder)
            if len(makings) != 1:
                continue
            scope, creations = next(iter(makings.items()))
            rank = (self.script.depth(scope), creations[0].lineno)
            if best is None or rank < best[:2]:
                best = (*rank, Item(holder, kind, scope, creations, {entity}, form))
        return best[2] if best else None

    def container_homes(self, entity: Entity, kind: str) -> list[Item]:
        """`container_home`, and the containers that other functions get from the same maker."""
        best = self.container_home(entity, kind)
        if best is None:
            return []
        makers = {maker for creation in best.creations for maker in self._makers(creation)}
        found = [best]
        for holder in self.containers.holders_of(entity) if makers else ():
            form = self.containers.form(holder, kind)
            makings = self.containers.makings(holder)
            if form is None or holder is best.holder or len(makings) != 1:
                continue
            scope, creations = next(iter(makings.items()))
            if all(self._makers(stmt) & makers for stmt in creations):
                found.append(Item(holder, kind, scope, creations, {entity}, form))
        return found

    def _used(self, holder: Holder) -> int:
        """Whether training uses a name itself, where an `Entity` has several (`net = ssd_net`)."""
        if (
            holder.scope is None
            or len({id(h) for t in holder.entities for h in self.script.holders_of(t)}) == 1
        ):
            return 1
        if is_only_evaluated(self.script, holder, holder.scope):
            return -1
        for read in self.script.reads(holder.name, holder.scope):
            parent = self.tree.parent(read)
            if not isinstance(parent, ast.Call) or self.script.is_without_gradients(parent):
                continue
            if self.script.trains_around(read) or self.script.trains(parent):
                return 1
        return 0

    def sites(self, items: list[Item]) -> list[PrepareSite]:
        """The prepare statements for some items, each in the innermost block that sees the last creation."""
        groups: dict[tuple[int, int, int], list[tuple[Item, list[ast.stmt], ast.stmt | None]]] = {}
        for item in items:
            for part, block, use in self._parts(item):
                groups.setdefault((id(item.scope), id(block), id(use)), []).append((part, block, use))
        found: list[PrepareSite] = []
        # Sites of one block in the order in which their names are first needed: the earliest takes along what is
        # made by then.
        limits: list[tuple[PrepareSite, list[Any], int]] = []
        for members in groups.values():
            block = members[0][1]
            uses = [block.index(use) for _, _, use in members if use is not None]
            limit = min(uses) if uses else len(block)
            last = -1
            for index, stmt in enumerate(block[:limit]):
                if (
                    any(stands_in(c, stmt) for item, _, _ in members for c in item.creations)
                    or any(stands_in(c, stmt) for c in self.measured)
                    or any(self._shapes(stmt, item) for item, _, _ in members)
                ):
                    last = index
            if last < 0:
                # Everything is made in the very statement that trains; prepare in its block after the last creation.
                creations = [c for item, _, _ in members for c in item.creations]
                after = max(creations, key=lambda s: self.tree.start(s))
            else:
                after = block[last]
            site = PrepareSite(members[0][0].scope, after)
            site.items = [item for item, _, _ in members]
            if last < 0:
                found.append(site)
            else:
                limits.append((site, block, limit))
        for site, block, _ in sorted(limits, key=lambda entry: entry[2]):
            for other, known, needed in limits:
                if other in found and known is block and other.scope is site.scope:
                    if block.index(site.after) < needed:
                        other.items += site.items
                        other.after = max(other.after, site.after, key=block.index)
                        break
            else:
                found.append(site)
        return sorted(found, key=lambda s: self.tree.start(s.after))

    def _parts(self, item: Item) -> list[tuple[Item, list[Any], ast.stmt | None]]:
        """The blocks in which an item is prepared, each with the first statement of it that trains with the item.

        One, unless it is made again inside the loop (an optimizer that is switched), or on some paths only.
        """
        body = item.scope.node.body
        block, use = self._descend(body, item)
        found: list[tuple[Item, list[Any], ast.stmt | None]] = []
        again = [
            c
            for c in item.creations
            if use is not None and self.tree.is_after(c, use) and not self._hands_back(c, item)
        ]
        late = [
            c
            for c in item.creations
            if use is not None and stands_in(c, use) and not self._hands_back(c, item)
        ]
        early = [c for c in item.creations if c not in late and c not in again]
        if again and (early or late):
            # Made again after the training, for a second one.
            found += self._parts(self._part(item, again))
            item = self._part(item, [c for c in item.creations if c not in again])
        if late and early:
            found += [(self._part(item, [c]), self.tree.block_of(c)[2], None) for c in late]
            item = self._part(item, early)
        if self._definite(block, item, use) or self._read_anyway(item):
            return [(item, block, use), *found]
        # Only made on some paths: prepare right there.
        return [(self._part(item, [c]), self.tree.block_of(c)[2], None) for c in item.creations] + found

    def _part(self, item: Item, creations: list[ast.stmt]) -> Item:
        return Item(item.holder, item.kind, item.scope, creations, item.entities, item.container)

    def _read_anyway(self, item: Item) -> bool:
        """Whether a name is read on every path: then it is made on every path that goes on."""
        name, owner = item.holder.name, item.holder.scope
        if owner is None:
            # Other kinds are what a script is about; of loaders, some modes of a script have none.
            reads = reads_of_attribute(item.holder) if item.kind == v.LOADER else []
            return not reads or any(on_every_path(self.script, read) for read in reads)
        if name in owner.positional() and not all(self._hands_back(s, item) for s in item.creations):
            if all(any(gives(self.script, s, t) for s in item.creations) for t in item.entities):
                return False  # a parameter is there anyway, and what its caller passes is prepared there
        first = self.tree.start(item.creations[0])
        for read in self.script.reads(name, owner):
            within = self.script.scope_of(read) is item.scope
            if within and self.tree.start(read) < first:
                continue
            if within and may_leave(self.tree, item.scope.nodes, first, read):
                continue
            if on_every_path(self.script, read):
                return True
        return False

    def _descend(self, block: list[Any], item: Item) -> tuple[list[Any], ast.stmt | None]:
        first = min(self.tree.start(c) for c in item.creations)
        for stmt in block:
            if isinstance(stmt, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                continue
            if self.tree.end(stmt) < first:
                continue  # whatever it does, it does not do it with the item
            needed = self.script.trains(stmt) or self._hands_over(stmt, item) or self._evaluates(stmt)
            if not needed and not self._hands_on(stmt, item):
                continue
            inside = [c for c in item.creations if stands_in(c, stmt)]
            earlier = block[: block.index(stmt)]
            before = [c for c in item.creations if any(stands_in(c, s) for s in earlier)]
            if before:
                return block, stmt
            if not inside:
                if any(self.tree.is_before(c, stmt) for c in item.creations):
                    return block, stmt
                continue
            if stmt in item.creations:
                continue
            for child in blocks(stmt):
                if any(stands_in(c, s) for c in inside for s in child):
                    found, use = self._descend(child, item)
                    if use is not None:
                        return found, use
            # After the training in it nothing runs it again, where it is no loop: `if __name__ == "__main__":`.
            made_after = isinstance(stmt, (ast.If, ast.With)) and len(inside) == len(item.creations)
            return self._around(block, item.creations) if made_after else block, None
        # No training below this block: after the creation, where it is.
        owner_block: list[Any] = self.tree.block_of(item.creations[-1])[2]
        if all(any(c is s for s in owner_block) for c in item.creations):
            return owner_block, None
        return self._around(block, item.creations), None

    def _around(self, block: list[Any], creations: list[ast.stmt]) -> list[Any]:
        """The innermost block in which all of some statements are."""
        for stmt in block:
            for inner in blocks(stmt) if stmt not in creations else ():
                if all(any(stands_in(c, s) for s in inner) for c in creations):
                    return self._around(inner, creations)
        return block

    def _definite(self, block: list[Any], item: Item, use: ast.stmt | None) -> bool:
        limit = block.index(use) if use is not None else len(block)
        every = [s for s, where in item.holder.assignments if where is item.scope]
        return any(assigns_always(stmt, every) for stmt in block[:limit]) or any(
            self.tree.is_before(s, block[0]) for s in every
        )


def _is_exception(cls: Class) -> bool:
    return any(
        (dotted(base) or "").endswith(("Error", "Exception"))
        for one in cls.ancestry()
        if isinstance(one.scope.node, ast.ClassDef)
        for base in one.scope.node.bases
    )
