"""Attributes of an object that is passed on: `args.name = ...` above `Runner(args)`, which reads `self.p.name`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from accelify.analysis.scopes import Scope, handed_to, in_order
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import dotted


class Holder(NamedTuple):
    """A function, or method, and the names under which it has an object."""

    function: Scope
    names: frozenset[str]


def holders(script: ScriptModel, call: ast.Call, given: str) -> Iterator[Holder]:
    """The functions that an object reaches by a call, also indirectly, with methods of a class that stores it.

    Args:
        script: its model.
        call: the call.
        given: the object's name in the call.
    """
    calls = script.interpreter.calls
    queue: list[tuple[Scope, frozenset[str]]] = []
    seen: set[Scope] = set()

    def hand_on(inner: ast.Call, names: frozenset[str]) -> None:
        for callee in in_order(calls.get(inner, set())):
            taken = frozenset(p for a, p in handed_to(inner, callee) if dotted(a) in names)
            if taken and callee not in seen:
                seen.add(callee)
                queue.append((callee, taken))

    hand_on(call, frozenset({given}))
    while queue:
        function, taken = queue.pop()
        names = _names_of(function, taken)
        found = [Holder(function, names)]
        own = f"{function.self_name()}."
        retained = {name.removeprefix(own) for name in names if name.startswith(own)}
        if retained and function.is_method and function.parent is not None:
            for method in function.parent.children.values():
                if method is not function and method.is_method:
                    stated = frozenset(f"{method.self_name()}.{name}" for name in retained)
                    found.append(Holder(method, _names_of(method, stated)))
        for one in found:
            yield one
            for node in one.function.nodes:
                if isinstance(node, ast.Call):
                    hand_on(node, one.names)


def reads(holder: Holder, attribute: str) -> Iterator[ast.Attribute]:
    """Where a function reads an attribute of the object that it has."""
    for node in holder.function.nodes:
        if isinstance(node, ast.Attribute) and node.attr == attribute and isinstance(node.ctx, ast.Load):
            if dotted(node.value) in holder.names:
                yield node


def _names_of(function: Scope, given: frozenset[str]) -> frozenset[str]:
    """The names under which a function has an argument with some names: `self.p = options`."""
    names = set(given)
    for node in function.nodes:
        if isinstance(node, ast.Assign) and dotted(node.value) in names:
            names |= {name for t in node.targets if (name := dotted(t)) is not None}
    return frozenset(names)
