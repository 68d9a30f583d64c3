"""Objects that a function makes in each call: two loaders of one helper are two loaders."""

from __future__ import annotations

import ast
from collections import Counter
from functools import cached_property

from accelify.analysis import values as v
from accelify.analysis.interpretation.state import State
from accelify.analysis.program import Module
from accelify.analysis.scopes import Scope
from accelify.analysis.values import Entity, Sequence, Value, Values

# Depth of nested helpers: beyond this, calls are not distinguished.
_DEEPEST = 3


class Factories(State):
    """The part of the interpreter that distinguishes the calls of a helper by what they return."""

    @cached_property
    def _times_called(self) -> Counter[str]:
        """How often a name is called anywhere in the program."""
        found: Counter[str] = Counter()
        for tree in {id(m.tree): m.tree for m in self.program.modules.values()}.values():
            for call in tree.nodes(ast.Call):
                func = call.func
                if isinstance(func, (ast.Name, ast.Attribute)):
                    found[func.id if isinstance(func, ast.Name) else func.attr] += 1
        return found

    def returned(self, node: ast.Call, target: Scope) -> Values:
        """What a call of a function returns."""
        given = self.returns.setdefault(target, set())
        self.reads.note(given)
        name = target.name.rsplit(".", 1)[-1]
        if not given or self._times_called[name] < 2:
            return set(given)
        return {self._of_call(w, node, target) for w in given}

    def _of_call(
        self, value: Value, node: ast.Call, target: Scope, around: frozenset[Value] = frozenset()
    ) -> Value:
        """The value itself, or for a loader that the function makes the one that this call makes.

        `around` are the sequences that the value is in: one can hold itself.
        """
        if isinstance(value, Sequence):
            self.reads.container(value)
            every = [*value.elements, value.rest]
            if value in around or len(around) > _DEEPEST:
                return self.entities.get((value, node), value)
            if not any(self._is_made_in(w, target) for contained in every for w in contained):
                return value
            own = self.entities.setdefault((value, node), Sequence())
            assert isinstance(own, Sequence)
            while len(own.elements) < len(value.elements):
                own.elements.append(set())
            for mine, contained in zip([*own.elements, own.rest], every, strict=True):
                self.add(mine, [self._of_call(w, node, target, around | {value}) for w in contained])
            return own
        if not self._is_made_in(value, target):
            return value
        assert isinstance(value, Entity)
        again = self.entities.get((value, node))
        if again is None:
            again = Entity(
                value.kind, value.site, value.module, value.qualname, value.cls, value.links, value.attributes
            )
            again.evidence = value.evidence
            again.made_by = (*self._made_by(value, target), node)
            self.entities[(value, node)] = again
            self.changed = True
        return again

    def _is_made_in(self, value: Value, target: Scope) -> bool:
        if not isinstance(value, Entity) or value.kind != v.LOADER or not isinstance(value.site, ast.Call):
            return False
        if len(value.made_by) >= _DEEPEST or self._is_stored(value, target):
            return False
        origin = [value.site, *self._made_by(value, target)][-1]
        module = self.module_of(target)
        scope: Scope | None = module.scopes.of(origin) if self._stands_in(origin, module) else None
        while scope is not None and scope is not target:
            scope = scope.parent
        return scope is target

    def _made_by(self, value: Entity, target: Scope) -> tuple[ast.Call, ...]:
        """The calls that lead to an entity; of helpers that are called once as well, up to one that `target` makes."""
        if value.made_by or not isinstance(value.site, ast.Call):
            return value.made_by
        found, module = [value.site], value.module
        while module is not None and len(found) <= _DEEPEST:
            function = module.scopes.of(found[-1])
            calls = self.callers.get(function, []) if function.kind == "function" else []
            if function is target or len(calls) != 1:
                break
            if self._times_called[function.name.rsplit(".", 1)[-1]] != 1:
                break
            module = calls[0][0]
            found.append(calls[0][1])
        return tuple(found[1:])

    def _stands_in(self, node: ast.AST, module: Module) -> bool:
        root = node
        for ancestor in module.tree.ancestors(node):
            root = ancestor
        return root is module.scopes.module.node

    def _is_stored(self, value: Entity, target: Scope) -> bool:
        """Whether a method stores what it made, to return it again."""
        owner = target.owner_class
        for cls in self.classes() if owner is not None else ():
            if cls.scope.node is owner:
                self.reads.all_of(cls.attributes)
        return owner is not None and any(
            value in contained
            for cls in self.classes()
            if cls.scope.node is owner
            for contained in cls.attributes.values()
        )
