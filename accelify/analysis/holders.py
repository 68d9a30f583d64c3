"""Where a script stores models, optimizers and the like: variables and attributes, with their assignments."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from accelify.analysis import values as v
from accelify.analysis.interpretation.interpreter import Interpreter
from accelify.analysis.program import Module
from accelify.analysis.scopes import Scope
from accelify.analysis.syntax import Node, Tree, dotted, flat_targets
from accelify.analysis.values import Class, Entity, Mapping, Sequence, Values


@dataclass(eq=False)
class Holder:
    """A variable or attribute that refers to `Entity` objects, with the statements that assign it."""

    name: str
    scope: Scope | None = None
    cls: Class | None = None
    entities: set[Entity] = field(default_factory=set)
    # The lists, tuples and dictionaries it holds.
    containers: Values = field(default_factory=set)
    assignments: list[tuple[ast.stmt, Scope]] = field(default_factory=list)

    def text(self, scope: Scope) -> str:
        """How it is written in a scope."""
        if self.cls is None:
            return self.name
        return f"{scope.self_name() or 'self'}.{self.name}"


class Holders:
    """The part of the ScriptModel that knows the names of each `Entity`."""

    tree: Tree
    interpreter: Interpreter
    modules: list[Module]

    if TYPE_CHECKING:

        def scope_of(self, node: Node) -> Scope: ...
        def entities(self, node: ast.expr, *kinds: str) -> set[Entity]: ...

    @cached_property
    def holders(self) -> list[Holder]:
        """Variables and attributes of this script that are assigned, with the `Entity` objects that they refer to."""
        found: dict[tuple[object, str], Holder] = {}
        statements = [*self.tree.nodes(ast.Assign), *self.tree.nodes(ast.AnnAssign)]
        for stmt in sorted(statements, key=lambda s: (s.lineno, s.col_offset)):
            scope = self.scope_of(stmt)
            targets = stmt.targets if isinstance(stmt, ast.Assign) else [stmt.target]
            for target in targets:
                for element in flat_targets(target):
                    self._note_holder(found, stmt, scope, element)
        return list(found.values())

    def _note_holder(
        self, found: dict[tuple[object, str], Holder], stmt: ast.stmt, scope: Scope, target: ast.expr
    ) -> None:
        if isinstance(target, ast.Name):
            owner = scope.resolve(target.id) or scope
            if owner.kind == "class" or target.id == "_":
                return
            holder = found.setdefault((owner, target.id), Holder(target.id, scope=owner))
            contained = self.interpreter.variables.get((owner, target.id), set())
        elif isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name):
            own = scope.self_name()
            classes = {t.cls for t in self.entities(target.value) if t.cls is not None}
            if own != target.value.id or not classes:
                return
            cls = sorted(classes, key=lambda c: len(c.ancestry()))[0]
            holder = found.setdefault((cls, target.attr), Holder(target.attr, cls=cls))
            contained = {w for c in cls.ancestry() for w in c.attributes.get(target.attr, set())}
        else:
            return
        holder.assignments.append((stmt, scope))
        holder.entities |= {w for w in contained if isinstance(w, Entity)}
        holder.containers |= {w for w in contained if isinstance(w, (Sequence, Mapping))}

    @cached_property
    def attributes_of_others(self) -> list[Holder]:
        """What is assigned to an attribute of an object: `options.model = Net()`, `self.wrapper.inner = SGD(...)`."""
        found: dict[tuple[Scope | None, str], Holder] = {}
        for stmt in self.tree.nodes(ast.Assign):
            for target in (e for t in stmt.targets for e in flat_targets(t)):
                scope, text = self.scope_of(stmt), dotted(target)
                if not isinstance(target, ast.Attribute) or text is None:
                    continue
                base = text.partition(".")[0]
                if isinstance(target.value, ast.Name):
                    if base == scope.self_name():
                        continue
                elif not any(t.cls is not None for t in self.entities(target.value, v.INSTANCE)):
                    continue
                holder = found.setdefault(
                    (scope.resolve(base), text), Holder(text, scope=scope.resolve(base) or scope)
                )
                holder.assignments.append((stmt, scope))
                holder.entities |= self.entities(target)
        return list(found.values())

    def parts_of_objects(self, entity: Entity) -> list[Holder]:
        """The attributes by which objects of another module's plain class refer to an `Entity`: `self.nets.encoder`."""
        return [h for h in self._stored_in_objects if entity in h.entities]

    @cached_property
    def _stored_in_objects(self) -> list[Holder]:
        """Of each name that holds such objects the attributes, made where one of the objects is."""
        found: list[Holder] = []
        for holder in self.holders:
            parts: dict[str, Holder] = {}
            for one in holder.entities:
                if one.kind != v.INSTANCE or one.cls is None or not isinstance(one.site, ast.Call):
                    continue
                made = [(s, where) for s, where in holder.assignments if self._makes(s, one)]
                if not made or one.cls.module in self.modules:
                    continue
                for name, contained in ((n, w) for c in one.cls.ancestry() for n, w in c.attributes.items()):
                    part = parts.setdefault(name, Holder(f"{holder.name}.{name}", holder.scope, holder.cls))
                    part.entities |= {w for w in contained if isinstance(w, Entity)}
                    part.assignments += [way for way in made if way not in part.assignments]
            for _, part in sorted(parts.items()):
                others = [way for way in holder.assignments if way not in part.assignments]
                if all(_is_loaded(stmt, where) for stmt, where in others):
                    part.assignments += others  # the object as a checkpoint brings it
                part.assignments.sort(key=lambda way: way[0].lineno)
                found.append(part)
        return found

    def _makes(self, stmt: ast.stmt, entity: Entity) -> bool:
        value = getattr(stmt, "value", None)
        return isinstance(value, ast.Call) and value is entity.site

    def holders_of(self, entity: Entity) -> list[Holder]:
        """The variables and attributes of this script that refer to an `Entity`."""
        return [h for h in self.holders if entity in h.entities]


def _is_loaded(stmt: ast.stmt, scope: Scope) -> bool:
    """Whether a statement takes an entry of what is read from a file: `wrapper = checkpoint["wrapper"]`."""
    entry = getattr(stmt, "value", None)
    name = dotted(entry.value) if isinstance(entry, ast.Subscript) else None
    return name is not None and any(
        isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Call)
        and (dotted(node.value.func) or "").rpartition(".")[2].startswith("load")
        and any(dotted(target) == name for target in node.targets)
        for node in scope.nodes
    )
