"""Figures of batches that a script draws by hand, `next(batches)`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from accelify.domains.placement import Kind, Placement, is_figure
from accelify.domains.reasons import Reason
from accelify.heap.containers import array_of
from accelify.heap.random_draws import SEEDED
from accelify.heap.run import Event
from accelify.obligations.runs import whole_loop

# How one says that a batch is of one process.
_BATCH = "this rank's batch of"
# What a reason says of a sum over the rounds of a loop.
ADDED = "` adds up over `"


def is_of_evaluation(event: Event, place: Placement, why: Reason | None, events: Sequence[Event]) -> bool:
    """Whether a figure is of batches that were drawn by hand in no loop that is still on, and for no training.

    Args:
        event: shows the figure.
        place: that of the figure.
        why: it is of one process's share.
        events: all of the script.
    """
    around = {loop.number for loop in event.loops}
    steps = set(_places(why))
    drawn = {
        (other.module.path, other.line)
        for other in events
        if other.kind == "draw"
        and (other.loops[-1].number not in around if other.loops else is_figure(place))
        and (other.module.path, other.line) in steps
    }
    return bool(drawn) and not any(
        drawn & set(_places(value.why))
        for other in events
        if other.kind == "backward"
        for value in other.shown
    )


def is_added_up_before(event: Event, why: Reason | None, events: Sequence[Event]) -> bool:
    """Whether a figure is a sum over the rounds of another loop than those around it, in which nothing is trained.

    Args:
        event: shows the figure.
        why: it is of one process's share.
        events: all of the script.
    """
    around = {loop.place for loop in event.loops}
    steps = why.steps() if why is not None else []
    places = {(step.path, step.line) for step in steps if ADDED in step.text} - around
    if not places or (steps[-1].path, steps[-1].line) in around:
        return False  # it is of the batch of this round
    found = [loop for other in events for loop in other.loops if loop.place in places]
    return bool(found) and not any(loop.trains for loop in found)


def is_total(why: Reason | None, events: Sequence[Event]) -> bool:
    """Whether a figure adds up over the rounds of a loop in which something happens: not over the layers of a model."""
    places = {loop.place for other in events for loop in other.loops}
    steps = why.steps() if why is not None else []
    return any(ADDED in step.text and (step.path, step.line) in places for step in steps)


def whole_of(event: Event, events: Sequence[Event]) -> Reason | None:
    """Why each process goes through all of a loader, in a loop around an event or by drawing what it trains with there;
    None where it does not, or what it trains with differs by more than what it has besides.

    Args:
        event: a backward.
        events: all of the script.
    """
    if not event.shown:
        return None
    value = event.shown[0]
    loop = whole_loop(event)
    whole = loop.whole if loop is not None else None
    if whole is not None and (array_of(value).needs == SEEDED or _is_of_other_loop(event, value.why)):
        return whole  # what each process draws besides, or has from another loader, makes no other samples of them
    if array_of(value).kind is not Kind.SAME:
        return None
    around = {loop.number for loop in event.loops}
    return next(
        (
            other.shown[0].why
            for other in events
            if other.kind == "draw of whole" and other.loops[-1].number in around
        ),
        None,
    )


def _is_of_other_loop(event: Event, why: Reason | None) -> bool:
    """Whether a loss differs between the processes by what an object has from another loop's batches alone."""
    origin = why.origin() if why is not None else None
    around = {loop.place for loop in event.loops}
    return origin is not None and origin.text.startswith(_BATCH) and (origin.path, origin.line) not in around


def _places(why: Reason | None) -> Iterator[tuple[str, int]]:
    return ((step.path, step.line) for step in (why.steps() if why is not None else ()))
