"""What is made of one of several classes, as a table or an option chooses: each of them, and the methods of each.

The interpreter knows such an object by the first of its classes. These functions look at all of its classes.
"""

from __future__ import annotations

from collections.abc import Iterator

from accelify.analysis import values as v
from accelify.analysis.values import Class, Entity, Function, Value

# What is called by its forward.
_RUN = (v.MODEL, v.INSTANCE, v.CRITERION)


def classes_of(entity: Entity) -> list[Class]:
    """The classes of the program that an `Entity` can be of."""
    return [entity.cls, *entity.others] if entity.cls is not None else []


def run_by(called: Value) -> Iterator[tuple[Function, Class | None]]:
    """The functions that a call of something can run, those of objects with the class that each is of."""
    if isinstance(called, Entity) and called.kind in _RUN:
        for cls in classes_of(called):
            forward = cls.method("forward") or cls.method("__call__")
            if forward is not None:
                yield Function(forward[1], forward[0].module), cls
    elif isinstance(called, Function):
        yield called, None
        others = called.receiver.others if isinstance(called.receiver, Entity) else []
        name = called.scope.name.rpartition(".")[2]
        for cls in others:
            own = cls.method(name)
            if own is not None and own[1] is not called.scope:
                yield Function(own[1], own[0].module, called.receiver), None
