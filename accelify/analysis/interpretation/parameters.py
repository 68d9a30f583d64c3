"""How the arguments of a call reach the parameters of a function, `*args` and `**kwargs` among them."""

from __future__ import annotations

import ast
from collections.abc import Collection
from typing import TYPE_CHECKING

from accelify.analysis.scopes import Scope
from accelify.analysis.values import Mapping, Sequence, Value, Values


class Parameters:
    """The part of the interpreter that binds them."""

    entities: dict[tuple[object, object], Value]

    if TYPE_CHECKING:

        def add(self, contained: Values, values: Collection[Value]) -> None: ...
        def bind(self, scope: Scope, name: str, values: Collection[Value]) -> None: ...

    def _positional(self, target: Scope, names: list[str], index: int, values: Values) -> None:
        """Bind a parameter to an argument, or put that into the function's `*args`."""
        signature = getattr(target.node, "args", None)
        if index < len(names):
            self.bind(target, names[index], values)
        elif isinstance(signature, ast.arguments) and signature.vararg is not None:
            rest = self.entities.setdefault((target.node, "rest"), Sequence())
            assert isinstance(rest, Sequence)
            self.add(rest.rest, values)
            self.bind(target, signature.vararg.arg, {rest})

    def _keyword(self, target: Scope, rest: str, name: object, values: Values) -> None:
        """Put an argument into a function's `**kwargs`."""
        mapping = self.entities.setdefault((target.node, "keywords"), Mapping())
        assert isinstance(mapping, Mapping)
        self.add(mapping.entries.setdefault(name, set()), values)
        self.bind(target, rest, {mapping})


__all__ = ["Parameters"]
