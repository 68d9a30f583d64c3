"""What was held for a parameter's own before its callers were known: taken out again once they are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from accelify.analysis import values as v
from accelify.analysis.values import Mapping, Sequence, Thing, Values

if TYPE_CHECKING:
    from accelify.analysis.interpretation.interpreter import Interpreter


def drop_strays(interpreter: Interpreter) -> None:
    """Forget the things that stand for parameters which, as it turned out, are handed something.

    A function may be looked at before the call that gives it a model is understood; its parameter then counts as
    given by nobody, and what is made of it (an optimizer) would hold that stray beside the model.
    """
    strays: set[object] = set()
    for owner, name in interpreter.variables:
        stray = interpreter.things.get((owner.node, ("parameter", name)))
        if isinstance(stray, Thing) and stray.kind not in (v.DEVICE, v.FLAG):
            held = interpreter.variables[owner, name]
            if held - {stray}:
                strays.add(stray)
    if not strays:
        return
    for held in _sets(interpreter):
        if len(held - strays) < len(held):
            held -= strays


def _sets(interpreter: Interpreter) -> Iterator[Values]:
    yield from interpreter.variables.values()
    yield from interpreter.returns.values()
    yield from (found for found, _ in interpreter._memo.values())
    for value in interpreter.things.values():
        if isinstance(value, Thing):
            yield from value.links.values()
            yield from value.attributes.values()
        elif isinstance(value, Sequence):
            yield from value.elements
            yield value.rest
        elif isinstance(value, Mapping):
            yield from value.entries.values()
            yield value.rest
    for cls in interpreter.classes():
        yield from cls.attributes.values()


__all__ = ["drop_strays"]
