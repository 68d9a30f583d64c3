"""Hazards of scripts that are written for several processes which only other places of the script show."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import takewhile

from accelify.domains.placement import Kind
from accelify.domains.reasons import Reason
from accelify.heap.paths import file_of
from accelify.heap.run import Event
from accelify.obligations.obligation import Obligation, Status
from accelify.obligations.sinks import SHOWING, made, places, word_of

# Modes that empty a file as it is opened.
_EMPTYING = ("w", "x")
_WRITING = (*_EMPTYING, "a")
_MEETINGS = ("backward", "step", "collective")
_WRITES = frozenset({"file.write", "file.append"})


def hazards_of(event: Event, events: Sequence[Event]) -> Iterator[Obligation]:
    """What is wrong at one event, as others of the script show.

    Args:
        event: of a script that is written for several processes.
        events: all of the script.
    """
    if event.kind == "forward" and not event.detail:
        yield from _called_by_some(event, events)
    elif event.kind == "file.read" and event.detail.startswith(_EMPTYING):
        yield from _emptied(event, events)
    elif event.kind in SHOWING and any(loop.whole is not None for other in events for loop in other.loops):
        yield from _copies(event)
    elif event.kind == "early":
        yield from _too_early(event, events)


def _too_early(event: Event, events: Sequence[Event]) -> Iterator[Obligation]:
    """What goes to the device of the process before the Accelerator selects it, in the same run."""
    number = next((n for n, other in enumerate(events) if other is event), 0)
    later = takewhile(lambda other: other.kind != "entry", events[number:])
    if selects := next((other for other in later if other.name == "Accelerator"), None):
        text = f"`{event.name}` comes before the Accelerator gives each process its device: all are on the first GPU"
        why = Reason("the Accelerator is made", selects.module.path, selects.line)
        yield made(event, "device", Status.NAMED, text, why)


def goes_into_training(event: Event, events: Sequence[Event]) -> bool:
    """Whether the processes train on with what one of them writes to a model or an optimizer.

    The wrapper around a model gives all of them the main process's weights as it is made, and its buffers in each
    forward.
    """
    if event.detail == "buffer":
        return False
    around = {loop.number for loop in event.loops}
    training = [other for other in events if other.kind in ("backward", "step")]
    if any(around & {loop.number for loop in other.loops} for other in training):
        return True
    number = next((n for n, other in enumerate(events) if other is event), 0)
    # What another function did that nobody calls is no part of its run.
    begin = max((n for n, other in enumerate(events[:number]) if other.kind == "entry"), default=0)
    wrapped = any(other.kind == "wrapped" for other in events[begin:number])
    return wrapped and any(other.kind in ("backward", "step") for other in events[number:])


def _copies(event: Event) -> Iterator[Obligation]:
    """A sum over the processes of what all of them have alike, as each goes through all samples of a loader."""
    for place, why in [pair for value in event.shown for pair in places(value)]:
        alike = place.kind is Kind.SAME and place.degree == -1 and why is not None
        if alike and why is not None and why.origin().text.startswith("reduced by"):
            text = f"{word_of(event)}: N times as much, as all processes go through the same samples and are summed up"
            yield made(event, "gathered", Status.NAMED, text, why)


def _called_by_some(event: Event, events: Sequence[Event]) -> Iterator[Obligation]:
    """A wrapped model, called where some ranks may come and others not: of random or own conditions in training alone.
    Where meetings stand under the same cause, they are what is named."""
    kinds = ("main", "others", *(("divergent",) if event.in_training else ()))
    guard = next((one for kind in kinds for one in event.guards if one.kind == kind), None)
    if guard is None:
        return
    cause, met = _place(guard.why), ("backward",) if guard.kind != "divergent" else _MEETINGS
    if not any(cause in map(_place, _whys(other)) for other in events if other.kind in met):
        text = f"`{event.name}` is called on some processes: a wrapper around it may wait for the others"
        yield made(event, "all ranks", Status.NAMED, text, guard.why)


def _is_of_main(event: Event) -> bool:
    return any(one.kind in ("main", "first") for one in event.guards)


def _whys(event: Event) -> Iterator[Reason]:
    return (guard.why for guard in event.guards)


def _place(why: Reason) -> tuple[str, int]:
    last = why.chain()[-1]
    return last.path, last.line


def _emptied(event: Event, events: Sequence[Event]) -> Iterator[Obligation]:
    """A file that the main process alone writes to, and every process opens anew."""
    path = event.path
    if path is None or not path.place.is_uniform or not file_of(path) or _is_of_main(event):
        return
    opened = [
        other
        for other in events
        if other is not event
        and file_of(other.path) == file_of(path)
        and (other.kind in _WRITES or other.detail.startswith(_WRITING))
    ]
    if opened and all(map(_is_of_main, opened)):
        text = "every process opens this file anew: what the main process has written before is gone"
        yield made(event, "once", Status.NAMED, text)
