"""Which events of a module can be of one run: what nothing calls of it, another script may call alone."""

from __future__ import annotations

from collections.abc import Sequence

from accelify.heap.run import Event


def of_its_run(event: Event, events: Sequence[Event]) -> list[Event]:
    """The events but those of other functions that nothing calls, where one is of such a function itself.

    Args:
        event: one of them.
        events: all, in their order; what a function does that nothing calls comes after its entry.
    """
    within, own = list[int](), 0
    for number, other in enumerate(events, 1):
        begins = other.kind == "entry"
        within.append((number if other.detail else 0) if begins else within[-1] if within else 0)
        if other is event:
            own = within[-1]
    return [other for other, of in zip(events, within, strict=True) if not own or of in (0, own)]


def has_accelerator(event: Event, events: Sequence[Event]) -> bool:
    """Whether the run that an event is of makes an Accelerator."""
    made = any(other.name == "Accelerator" for other in events)
    return made and any(other.name == "Accelerator" for other in of_its_run(event, events))
