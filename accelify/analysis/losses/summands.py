"""What a loss of one number is made of: its summands and factors have one element each, or it had more."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from accelify.analysis.losses.elementwise import operands
from accelify.analysis.program import Module
from accelify.analysis.scopes import Scope, handed_to
from accelify.analysis.statements.assigned_values import ADDED, PART, WHOLE, Gift, Given, Place
from accelify.analysis.syntax import walk

_Spot = tuple[ast.expr, Module]
# Parameters by which a function returns one number or many.
_CHOOSING = re.compile(r"reduc|average|mean|none", re.I)


class Summands:
    """Follows losses back to the names and attributes that are sure to hold one number as they do.

    Args:
        given: what is assigned to places of the program.
    """

    def __init__(self, given: Given) -> None:
        self.given = given
        self.places: set[Place] = set()
        self._returned: set[tuple[Scope, int | None]] = set()

    def follow(self, loss: ast.expr, module: Module) -> None:
        """Take in a loss, and all that it is made of entry by entry."""
        place = self.given.place(loss, module)
        if place is not None:
            self.places.add(place)
            queue = self._after(place, loss, module)
        else:
            queue = [(loss, module)]
        while queue:
            queue += self._next(*queue.pop())

    def _next(self, node: ast.expr, module: Module) -> list[_Spot]:
        """What has one element, too, where an expression has."""
        if isinstance(node, (ast.Name, ast.Attribute)) and getattr(node, "attr", "") != "data":
            place = self.given.place(node, module)
            if place is None or place in self.places or self._is_reduced_later(place, node, module):
                return []
            self.places.add(place)
            return self._after(place, node, module)
        name = self.given.imported_name(node.func, module) if isinstance(node, ast.Call) else ""
        parts = operands(node, name)
        if parts is None:
            return list(self._given_back(node, None)) if isinstance(node, ast.Call) else []
        return [(part, module) for part in parts if not isinstance(part, ast.Constant)]

    def _after(self, place: Place, node: ast.expr, module: Module) -> list[_Spot]:
        """What is assigned to a place, in its function and by the calls of it."""
        found: list[_Spot] = []
        if not self._is_reduced_later(place, node, module):
            for gift in self.given.given(node, module) or ():
                found += self._of(gift)
        if self.given.is_parameter(place):
            for home, call in self.given.script.interpreter.callers.get(place[0], []):
                found += [
                    (argument, home) for argument, name in handed_to(call, place[0]) if name == place[1]
                ]
        return found

    def _of(self, gift: Gift) -> list[_Spot]:
        if gift.how in (WHOLE, ADDED):
            return [(gift.value, gift.module)]
        if gift.how == PART and isinstance(gift.value, ast.Call):
            return list(self._given_back(gift.value, gift.index))
        return []

    def _is_reduced_later(self, place: Place, node: ast.expr, module: Module) -> bool:
        """Whether a place holds what has many elements first, and their sum or mean later: `loss = loss.mean()`."""
        return any(
            gift.how == WHOLE and self._reduces(gift.value, gift.module, place)
            for gift in self.given.given(node, module) or ()
        )

    def _reduces(self, node: ast.expr, module: Module, place: Place) -> bool:
        name = self.given.imported_name(node.func, module) if isinstance(node, ast.Call) else ""
        parts = operands(node, name)
        if parts is not None:
            return any(self._reduces(part, module, place) for part in parts)
        return not isinstance(node, (ast.Name, ast.Attribute)) and any(
            isinstance(n, (ast.Name, ast.Attribute)) and self.given.place(n, module) == place
            for n in walk(node)
        )

    def _given_back(self, call: ast.Call, index: int | None) -> Iterator[_Spot]:
        """What the function that a call runs returns, or the part of it at an index."""
        callees = self.given.script.callees(call)
        for callee in callees if len(callees) == 1 else ():
            if (callee, index) in self._returned or any(_CHOOSING.search(a.arg) for a in callee.parameters()):
                continue
            self._returned.add((callee, index))
            module = self.given.script.interpreter.module_of(callee)
            for node in callee.nodes:
                value = node.value if isinstance(node, ast.Return) else None
                if index is not None:
                    value = (
                        value.elts[index]
                        if isinstance(value, (ast.Tuple, ast.List)) and index < len(value.elts)
                        else None
                    )
                if value is not None:
                    yield value, module


__all__ = ["Summands"]
