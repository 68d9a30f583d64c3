"""Conditions that are asked more than once in a round of a loop: what one way left is there where it is gone again.

if flag:
    extra = penalty(x)
...
if flag:
    loss = loss + extra     # the one of this round, not what the round before left
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from accelify.heap.pieces import Written
from accelify.heap.run import Run
from accelify.heap.values import Container, Instance, Ref, Value

if TYPE_CHECKING:
    from accelify.heap.interpreter import Interpreter

Slot = tuple[Ref, str]
_Left = tuple[Value | None, Value | None, Value | None]


class Choices:
    """What the two ways of a condition left."""

    def __init__(self, engine: Interpreter) -> None:
        self.engine = engine
        self.store = engine.run.store
        # For each slot that a condition reads: what is in others after both ways, after the one and after the other.
        self._left: dict[Slot, dict[Slot, _Left]] = {}

    def asked(self, test: ast.expr, scope: Ref) -> tuple[Slot, bool] | None:
        """The slot that a condition reads, and whether it is true where that is; None where it reads more than a name
        or an attribute, or where a round of the loop around may have changed it."""
        taken = True
        while isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            test, taken = test.operand, not taken
        slot: Slot | None = None
        if isinstance(test, ast.Name):
            owner = self.engine.names.owner(test.id, scope)
            slot = (owner, test.id) if owner is not None else None
        elif isinstance(test, ast.Attribute) and isinstance(test.value, ast.Name):
            base = self.engine.evaluate(test.value, scope).of(Instance)
            slot = (base[0], test.attr) if len(base) == 1 else None
        if slot is None or slot[1] not in slot[0].fields or self.store.touched_in_round(*slot):
            return None
        return slot, taken

    def remember(self, asked: tuple[Slot, bool] | None, one: Written, other: Written, both: Written) -> None:
        """Note what the ways of a condition left, the one where it is true first."""
        if asked is None:
            return
        slot, taken = asked
        if not taken:
            one, other = other, one
        left = self._left.setdefault(slot, {})
        for key, value in both.items():
            if key[1][0] != "#":
                before = key[0].fields.get(key[1])
                left[key] = value, one.get(key, before), other.get(key, before)

    @contextmanager
    def taking(self, asked: tuple[Slot, bool] | None, taken: bool) -> Iterator[None]:
        """Within, there is what the same way of an earlier condition left, as far as nothing was written since."""
        put: list[tuple[Slot, Value, Value]] = []
        if asked is not None:
            for key, (both, one, other) in self._left.get(asked[0], {}).items():
                value = one if asked[1] == taken else other
                if both is not None and value is not None and key[0].fields.get(key[1]) is both:
                    self.store.note(*key)
                    self.store.set(*key, value)
                    put.append((key, value, both))
        yield
        for key, value, both in put:
            if key[0].fields.get(key[1]) is value:
                self.store.set(*key, both)


def outlast(run: Run, one: Written, other: Written) -> None:
    """Let what one of two ways makes and puts into an object or a dictionary, where on the other that of a round before
    stays, last as long as they do: `if key not in table: table[key] = []`. It is begun once, not in each round."""
    for slot in list(one.keys() ^ other.keys()):
        owner, name = slot
        made, before = one.get(slot) or other.get(slot), owner.fields.get(name)
        if made is None or before is None or not isinstance(owner, Container | Instance):
            continue
        if owner.type != "dict" and (isinstance(owner, Container) or run.store.is_of_shared_round(*slot)):
            continue  # another element of a list, or an attribute of this round
        for ref in {ref for ref in made.refs if isinstance(ref, Container | Instance) and ref.loops}:
            if ref in before.refs:
                run.depends()
                run.place(ref, owner.loops)
                for way in (one, other):
                    for key in [key for key in way if key[0] is ref and key[1] in ref.fields]:
                        if run.store.pieces:
                            run.store.note(*key)
                        del way[key]
