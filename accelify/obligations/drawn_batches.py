"""Figures of batches that a script draws by hand, `next(batches)`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from accelify.domains.reasons import Reason
from accelify.heap.run import Event


def is_of_evaluation(event: Event, why: Reason | None, events: Sequence[Event]) -> bool:
    """Whether a figure is of batches that a loop before drew by hand, and that nothing is trained with.

    Args:
        event: shows the figure.
        why: it is of one process's share.
        events: all of the script.
    """
    around = {loop.number for loop in event.loops}
    steps = set(_places(why))
    drawn = {
        (other.module.path, other.line)
        for other in events
        if other.kind == "draw"
        and other.loops
        and other.loops[-1].number not in around
        and (other.module.path, other.line) in steps
    }
    return bool(drawn) and not any(
        drawn & set(_places(value.why))
        for other in events
        if other.kind == "backward"
        for value in other.shown
    )


def _places(why: Reason | None) -> Iterator[tuple[str, int]]:
    return ((step.path, step.line) for step in (why.steps() if why is not None else ()))
