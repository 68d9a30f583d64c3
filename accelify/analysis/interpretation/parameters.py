"""How the arguments of a call reach the parameters of a function, `*args` and `**kwargs` among them."""

from __future__ import annotations

import ast

from accelify.analysis.interpretation.state import State
from accelify.analysis.scopes import Scope
from accelify.analysis.values import Mapping, Sequence, Values


class Parameters(State):
    """The part of the interpreter that binds them."""

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
