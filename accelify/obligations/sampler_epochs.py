"""Samplers that never get the number of the epoch, by which they shuffle."""

from __future__ import annotations

from collections.abc import Sequence

from accelify.heap.collating import SAMPLERS
from accelify.heap.run import Event
from accelify.heap.values import Instance


def numbered(event: Event, events: Sequence[Event]) -> bool:
    """Whether a sampler may get the number of the epoch, or needs none: where another one does, it is the one that is
    trained with that needs it.

    Args:
        event: the sampler is made.
        events: all of the script.
    """
    own = {ref for value in event.shown for ref in value.of(Instance)}
    called = [set(other.shown[0].of(Instance)) for other in events if other.kind == "epoch"]
    others = all(refs and not refs & own and all(ref.kind == "sampler" for ref in refs) for refs in called)
    return bool(called) and not (others and own & _trained_with(events))


def _trained_with(events: Sequence[Event]) -> set[Instance]:
    """The samplers of the loaders whose batches are trained with."""
    loops = [loop for one in events if one.kind == "backward" for loop in one.loops]
    wholes = {
        inner
        for one in {loader for loop in loops for loader in loop.loaders}
        for inner in (one, *(one.wrapped.of(Instance) if one.wrapped is not None else ()))
    }
    given = [one.fields.get(f"#{name}") for one in wholes for name in SAMPLERS]
    return {ref for value in given if value is not None for ref in value.of(Instance)}
