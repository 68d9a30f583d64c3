"""The way of a device from the options to where something is moved: `args.device`, copied to names on the way.

self.device = args.device           # in a trainer, or `device = args.device` in a function
x = x.to(self.device)
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import NamedTuple

from accelify.analysis.scopes import Scope
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import assigned_pairs, call_argument, dotted
from accelify.analysis.values import Class

# How many names and parameters are between an option and a move at most.
_FARTHEST = 4


class Way(NamedTuple):
    """An option that names a device, the names that it went through, and the values of these that are copies of it."""

    option: ast.expr
    names: frozenset[str]
    copies: tuple[ast.expr, ...]


class Ways:
    """From what something is moved to back to the options, through assignments and parameters.

    Args:
        script: its model.
        is_option: whether an expression is an entry of the options.
    """

    def __init__(self, script: ScriptModel, is_option: Callable[[ast.expr], bool]) -> None:
        self.script = script
        self._is_option = is_option

    def to(self, node: ast.expr) -> Iterator[Way]:
        """The options whose device a name or an attribute of `self` holds."""
        for way in self._back(node):
            if way.option is not node and self._is_option(way.option):
                yield way

    def seen_from(self, node: ast.expr, scope: Scope) -> str | None:
        """The name that a scope has for what a name or an attribute of `self` holds, if it has just one."""
        found = [way.option for way in self._back(node) if self.script.scope_of(way.option) is scope]
        texts = {dotted(one) for one in found if not isinstance(one, ast.Subscript)}
        return texts.pop() if len(texts) == 1 else None

    def _back(self, node: ast.expr) -> Iterator[Way]:
        stack: list[tuple[ast.expr, frozenset[str], tuple[ast.expr, ...], int]]
        stack = [(node, frozenset(), (), _FARTHEST)]
        seen: set[ast.expr] = set()
        while stack:
            current, names, copies, left = stack.pop()
            if current in seen:
                continue
            seen.add(current)
            yield Way(current, names, copies)
            text = dotted(current)
            if text is None or not left or (current is not node and self._is_option(current)):
                continue
            names |= {text}
            stack += [(value, names, (*copies, value), left - 1) for value in self._bound(current, text)]
            stack += [
                (given, names, copies, left - 1) for given in handed_to_parameter(self.script, current, text)
            ]

    def _bound(self, node: ast.expr, text: str) -> list[ast.expr]:
        """What is assigned to a variable, or to an attribute of `self` in its class and those of its family."""
        found = self._assigned.get(text)
        if found is None:
            return []
        scope = self.script.scope_of(node)
        if isinstance(node, ast.Name):
            owner = scope.resolve(text)
            return [w for stmt, w in found if self.script.scope_of(stmt).resolve(text) is owner]
        own = scope.owner_class
        if own is None or text.count(".") != 1 or text.partition(".")[0] != self_of(scope):
            return []
        family = _class_of(self.script, own)
        return [w for stmt, w in found if _are_related(family, self.script, self.script.scope_of(stmt))]

    @cached_property
    def _assigned(self) -> dict[str, list[tuple[ast.stmt, ast.expr]]]:
        """Everything that is assigned a name or something read off one, by what it is assigned to."""
        found: dict[str, list[tuple[ast.stmt, ast.expr]]] = {}
        for stmt in self.script.tree.nodes(ast.Assign, ast.AnnAssign):
            if stmt.value is None:
                continue
            for target in stmt.targets if isinstance(stmt, ast.Assign) else [stmt.target]:
                for one, value in assigned_pairs(target, stmt.value):
                    if isinstance(value, (ast.Name, ast.Attribute, ast.Subscript)):
                        found.setdefault(dotted(one) or "", []).append((stmt, value))
        return found


def self_of(scope: Scope) -> str | None:
    """The name of the object in a method, and in the functions inside of one."""
    current: Scope | None = scope
    while current is not None and current.kind == "function":
        if current.is_method:
            return current.self_name()
        current = current.parent
    return None


def _class_of(script: ScriptModel, node: ast.ClassDef) -> Class | None:
    found = script.interpreter.entities.get((node, "class"))
    return found if isinstance(found, Class) else None


def _are_related(cls: Class | None, script: ScriptModel, scope: Scope) -> bool:
    other = _class_of(script, scope.owner_class) if scope.owner_class is not None else None
    if cls is None or other is None:
        return False
    return cls in other.ancestry() or other in cls.ancestry()


def handed_to_parameter(script: ScriptModel, node: ast.expr, text: str) -> Iterator[ast.expr]:
    """What callers hand to a parameter."""
    owner = script.scope_of(node).resolve(text) if isinstance(node, ast.Name) else None
    if owner is None or owner.kind != "function" or text == owner.self_name():
        return
    names = owner.positional()
    if text not in {argument.arg for argument in owner.parameters()}:
        return
    # The script writes no `self`.
    index = names.index(text) - (owner.self_name() is not None) if text in names else -1
    for call in script.callers(owner):
        given = call_argument(call, index, text)
        if given is not None:
            yield given
