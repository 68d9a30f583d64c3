"""Where each part of a value that is shown stands: what a text shows, what lies in containers and objects."""

from __future__ import annotations

from collections.abc import Iterator

from accelify.domains.placement import Placement
from accelify.domains.reasons import Reason
from accelify.heap.containers import array_of, shown_fields
from accelify.heap.run import why_of
from accelify.heap.values import Container, Instance, Value


def places(value: Value, depth: int = 0) -> Iterator[tuple[Placement, Reason | None]]:
    """The placements of a value, and of what lies in it."""
    containers = value.of(Container)
    if not containers or depth > 3:
        yield from [(array_of(value), why := why_of(value)), *(why.beside if why is not None else ())]
        for one in value.of(Instance) if depth <= 3 else []:
            for inner in shown_fields(one):
                yield from places(inner, depth + 1)
        return
    yield value.place, value.why
    for ref in containers:
        fill = ref.fields.get("#fill")
        for name, inner in list(ref.fields.items()):
            if name.startswith("["):
                if fill is not None and not array_of(inner).is_same:
                    yield array_of(Value(refs=(ref,))), why_of(inner)
                else:
                    yield from places(inner, depth + 1)
