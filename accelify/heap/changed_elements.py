"""Elements that a loop changes: `for x in tensors: dist.all_reduce(x)`, `for k in table: table[k] = mean(table[k])`."""

from __future__ import annotations

import ast
from functools import lru_cache
from typing import TYPE_CHECKING

from accelify.heap.containers import element
from accelify.heap.values import Container, Iterable, Ref, Value, is_zero

if TYPE_CHECKING:
    from accelify.heap.interpreter import Interpreter


class Changed:
    """What the rounds of a loop make of the elements that it goes over: of each by itself.

    Args:
        engine: the interpreter.
        stmt: the loop.
        scope: the variables there.
        over: what it goes over.
    """

    def __init__(self, engine: Interpreter, stmt: ast.For | ast.AsyncFor, scope: Ref, over: Iterable) -> None:
        self._engine = engine
        self._name = _changing(stmt) if engine.run.checks else ""
        self._stmt, self._scope = stmt, scope
        self._found: list[tuple[Value, Value]] = []
        table = _rewritten(stmt) if engine.run.checks and not over.elements else None
        self._tables: list[tuple[Container, Value]] = []
        self._made: list[Value | None] = []
        for ref in engine.evaluate(table, scope).of(Container) if table is not None else ():
            slots = {name: engine.run.read(ref, name) for name in ref.looked_into() if name[0] == "["}
            stood = [one for one in slots.values() if one is not None and not is_zero(one)]
            if "[]" in slots and stood and not any(one.refs for one in stood):
                self._tables.append((ref, engine.together(stood).plain()))

    def begin(self) -> None:
        """A round begins with an element that no other round has written."""
        run = self._engine.run
        for ref, stood in self._tables:
            for name in [name for name in ref.looked_into() if name[0] == "["]:
                run.store.set(ref, name, None)
            run.store.set(ref, "[]", stood)
            run.absent.append(((ref, "[]"), len(run.store.pieces)))

    def note(self, item: Value) -> None:
        """A round is at its end that began with an element."""
        run = self._engine.run
        del run.absent[len(run.absent) - len(self._tables) :]
        self._made = [run.read(ref, "[]") for ref, _ in self._tables]
        if isinstance(self._stmt.target, ast.Tuple) and self._name:
            item = element(run, item, self._stmt, 1)
        owner = self._engine.names.owner(self._name, self._scope) if self._name and not item.refs else None
        now = self._engine.run.read(owner, self._name) if owner is not None else None
        if now is not None and not now.refs and now.place != item.place:
            self._found.append((item, now))

    def write(self, value: Value) -> None:
        """The loop is at its end: its elements are what the rounds made of them."""
        run = self._engine.run
        for (ref, _), made_of in zip(self._tables, self._made, strict=False):
            run.store.set(ref, "[]", None if made_of is None else made_of.plain())
        table = _table_of(self._stmt) if self._found else None
        shown = self._engine.evaluate(table, self._scope).of(Container) if table is not None else []
        for ref in [*value.of(Container), *shown] if self._found else ():
            for slot, inner in list(ref.looked_into().items()):
                made = [now for item, now in self._found if item.place == inner.place]
                if slot[0] == "[" and not inner.refs and made:
                    run.store.set(ref, slot, made[-1].plain())


@lru_cache(maxsize=512)
def _rewritten(stmt: ast.For | ast.AsyncFor) -> ast.expr | None:
    """The table whose keys a loop goes over, where it writes to it under its own key alone."""
    table, target = stmt.iter, stmt.target
    if isinstance(table, ast.Call) and getattr(table.func, "id", "") in ("list", "sorted", "tuple"):
        table = table.args[0] if table.args else table
    if isinstance(table, ast.Call) and getattr(table.func, "attr", "") in ("keys", "items"):
        target = target.elts[0] if isinstance(target, ast.Tuple) else target
        table = getattr(table.func, "value", table)
    written = {
        ast.unparse(one.slice)
        for part in stmt.body
        for one in ast.walk(part)
        if isinstance(one, ast.Subscript) and isinstance(one.ctx, ast.Store)
        if ast.dump(one.value) == ast.dump(table)
    }
    return table if written == {ast.unparse(target)} else None


def _table_of(stmt: ast.For | ast.AsyncFor) -> ast.expr | None:
    """The dictionary whose values a loop goes over: `for x in table.values()`, `for key, x in table.items()`."""
    called = stmt.iter.func if isinstance(stmt.iter, ast.Call) else None
    asked = "items" if isinstance(stmt.target, ast.Tuple) else "values"
    fits = isinstance(called, ast.Attribute) and called.attr == asked
    base = called.value if isinstance(called, ast.Attribute) and fits else None
    return base if isinstance(base, ast.Name | ast.Attribute) else None


@lru_cache(maxsize=512)
def _changing(stmt: ast.For | ast.AsyncFor) -> str:
    """The name for the elements, where the loop hands it to a call, and never binds it; "" elsewhere."""
    target = stmt.target
    if isinstance(target, ast.Tuple) and len(target.elts) == 2 and _table_of(stmt) is not None:
        target = target.elts[1]
    if not isinstance(target, ast.Name):
        return ""
    name = target.id
    inside = [one for part in stmt.body for one in ast.walk(part)]
    names = [one for one in inside if isinstance(one, ast.Name) and one.id == name]
    called = {arg for one in inside if isinstance(one, ast.Call) for arg in (one.args[:1] or [one.func])}
    given = any(one in called for one in names)
    return name if given and all(isinstance(one.ctx, ast.Load) for one in names) else ""
