"""What methods store in attributes and globals, and what reads it again."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from accelify.analysis import values as v
from accelify.analysis.program import Module
from accelify.analysis.scopes import Scope
from accelify.analysis.script import ScriptModel
from accelify.analysis.values import Class, Entity


class StoredState:
    """Finds what reads the value of an attribute of a class, or of a global.

    Args:
        script: the script, with the modules that it imports.
        for_all: whether a function has to be run by all processes.
        shows: whether a function writes or prints.
    """

    def __init__(
        self, script: ScriptModel, for_all: Callable[[Scope], bool], shows: Callable[[Scope], bool]
    ) -> None:
        self.script = script
        self.interpreter = script.interpreter
        self._for_all = for_all
        self._shows = shows
        self._attributes: dict[str, list[tuple[Module, ast.Attribute]]] | None = None
        self._models: set[Scope] | None = None
        self._asked: set[tuple[Scope, str]] = set()

    def is_read(self, owner: Scope, name: str) -> bool:
        """Whether what is stored reaches what all processes do: a result, the training, code outside of the class."""
        if owner.kind == "module":
            module = self.interpreter.module_of(owner)
            return any(
                n.id == name
                and isinstance(n.ctx, ast.Load)
                and (scope := self.script.scope_in(module, n)).resolve(name) is owner
                and scope.kind != "module"
                and self._gives_back(scope)
                for n in module.tree.nodes(ast.Name)
            ) or any(True for _ in self._reads_of(name))
        for module, node in self._reads_of(name):
            scope = self.script.scope_in(module, node)
            if class_of(scope) is owner and isinstance(node.value, ast.Name):
                if self._gives_back(scope) or (not _is_first(scope) and self._for_all(scope)):
                    return True
            elif self._may_be(module, scope, node.value, owner):
                return True
        return False

    def is_shown_only(self, owner: Scope, name: str) -> bool:
        """Whether what is stored is read only by methods of its class that write or print."""
        if owner.kind == "module" or (owner, name) in self._asked:
            return True
        self._asked.add((owner, name))  # a method that shows it may set it, too
        reads = [self.script.scope_in(module, node) for module, node in self._reads_of(name)]
        reads = [scope for scope in reads if class_of(scope) is owner]
        found = bool(reads) and all(_is_first(scope) or self._shows(scope) for scope in reads)
        self._asked.discard((owner, name))
        return found

    def is_of_model(self, owner: Scope) -> bool:
        """Whether a class is a model, whose attributes torch reads, too."""
        if self._models is None:
            classes = [c for c in self.interpreter.classes() if c.instance and c.instance.kind == v.MODEL]
            self._models = {c.scope for c in classes}
        return owner in self._models

    def _gives_back(self, scope: Scope) -> bool:
        """Whether the function around a read returns something (or there is none)."""
        return scope.kind != "function" or any(
            isinstance(n, (ast.Yield, ast.YieldFrom)) or (isinstance(n, ast.Return) and n.value is not None)
            for n in scope.nodes
        )

    def _may_be(self, module: Module, scope: Scope, node: ast.expr, owner: Scope) -> bool:
        """Whether an expression can be an instance of a class: yes where nothing is known of it."""
        contained = self.interpreter.evaluate(module, scope, node)
        if not contained:
            return True
        for value in contained:
            if isinstance(value, Entity):
                if value.cls is None and value.kind in (v.UNKNOWN, v.INSTANCE):
                    return True
                if value.cls is not None and any(c.scope is owner for c in value.cls.ancestry()):
                    return True
            elif isinstance(value, Class) and any(c.scope is owner for c in value.ancestry()):
                return True
        return False

    def _reads_of(self, name: str) -> Iterator[tuple[Module, ast.Attribute]]:
        if self._attributes is None:
            self._attributes = {}
            seen: set[int] = set()
            for module in self.script.program.modules.values():
                if id(module.tree) in seen:
                    continue
                seen.add(id(module.tree))
                for node in module.tree.nodes(ast.Attribute):
                    if isinstance(node.ctx, ast.Load):
                        self._attributes.setdefault(node.attr, []).append((module, node))
        for module, node in self._attributes.get(name, ()):
            yield (self.script.module_of(node) if module in self.script.modules else module), node


def class_of(scope: Scope) -> Scope | None:
    """The class whose method a function is, or is in."""
    current: Scope | None = scope
    while current is not None:
        if current.is_method:
            return current.parent
        current = current.parent
    return None


def own_attribute(scope: Scope, target: ast.expr) -> str | None:
    """`x` of `self.x`, `self.x[...]` and `self.x.y` in a method."""
    own = scope.method_around.self_name()
    node: ast.expr = target
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == own:
            return node.attr if own is not None else None
        node = node.value
    return None


def _is_first(scope: Scope) -> bool:
    return scope.name.rsplit(".", 1)[-1] == "__init__"
