"""Elements that a loop changes in place: `for x in tensors: dist.all_reduce(x)`."""

from __future__ import annotations

import ast
from functools import lru_cache
from typing import TYPE_CHECKING

from accelify.heap.values import Container, Ref, Value

if TYPE_CHECKING:
    from accelify.heap.interpreter import Interpreter


class Changed:
    """What the rounds of a loop make of the elements that it goes over, where it binds none of them anew.

    Args:
        engine: the interpreter.
        stmt: the loop.
        scope: the variables there.
    """

    def __init__(self, engine: Interpreter, stmt: ast.For | ast.AsyncFor, scope: Ref) -> None:
        self._engine = engine
        self._name = _changing(stmt) if engine.run.checks else ""
        self._scope = scope
        self._found: list[tuple[Value, Value]] = []

    def note(self, item: Value) -> None:
        """A round is at its end that began with an element."""
        owner = self._engine.names.owner(self._name, self._scope) if self._name and not item.refs else None
        now = self._engine.run.read(owner, self._name) if owner is not None else None
        if now is not None and not now.refs and now.place != item.place:
            self._found.append((item, now))

    def write(self, value: Value) -> None:
        """The loop is at its end: its elements are what the rounds made of them."""
        run = self._engine.run
        for ref in value.of(Container) if self._found else ():
            for slot, inner in list(ref.looked_into().items()):
                made = [now for item, now in self._found if item.place == inner.place]
                if slot[0] == "[" and not inner.refs and made:
                    run.store.set(ref, slot, made[-1].plain())


@lru_cache(maxsize=512)
def _changing(stmt: ast.For | ast.AsyncFor) -> str:
    """The name for the elements, where the loop hands it to a call, and never binds it; "" elsewhere."""
    if not isinstance(stmt.target, ast.Name):
        return ""
    name = stmt.target.id
    inside = [one for part in stmt.body for one in ast.walk(part)]
    names = [one for one in inside if isinstance(one, ast.Name) and one.id == name]
    called = {arg for one in inside if isinstance(one, ast.Call) for arg in (one.args[:1] or [one.func])}
    given = any(one in called for one in names)
    return name if given and all(isinstance(one.ctx, ast.Load) for one in names) else ""
