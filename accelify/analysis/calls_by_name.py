"""Calls of libraries by their names: which transforms ask for most, each for a few of them."""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterable
from functools import cached_property
from typing import TYPE_CHECKING


class CallsByName:
    """The part of the ScriptModel that finds calls by the qualified name of what they call."""

    if TYPE_CHECKING:

        def calls(self) -> Iterable[ast.Call]: ...
        def qualname(self, node: ast.expr) -> str | None: ...

    def calls_to(self, names: Collection[str]) -> list[ast.Call]:
        """The calls of some functions or classes of libraries, in source order.

        Args:
            names: their qualified names, such as `torch.save`.
        """
        return self._joined([self._places[name] for name in names if name in self._places])

    def calls_named(self, is_wanted: Callable[[str], object]) -> list[ast.Call]:
        """The calls of libraries whose qualified name passes a test, in source order."""
        return self._joined([places for name, places in self._places.items() if is_wanted(name)])

    @cached_property
    def _places(self) -> dict[str, list[tuple[int, ast.Call]]]:
        """Every call of a library by its name, each with its number in source order."""
        found: dict[str, list[tuple[int, ast.Call]]] = {}
        for place, call in enumerate(self.calls()):
            name = self.qualname(call.func)
            if name is not None:
                found.setdefault(name, []).append((place, call))
        return found

    @staticmethod
    def _joined(found: list[list[tuple[int, ast.Call]]]) -> list[ast.Call]:
        together = [one for places in found for one in places]
        if len(found) > 1:
            together.sort(key=lambda one: one[0])
        return [call for _, call in together]
