"""Statistics of batches that layers note: made anew by a pass over a loader, of which each rank has a share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from accelify.domains.reasons import Reason
from accelify.heap.run import Event
from accelify.obligations.obligation import Obligation, Status
from accelify.obligations.sinks import made

_TRAINS = frozenset({"entry", "backward", "step"})


def of_one_share(event: Event, events: Sequence[Event]) -> Iterator[Obligation]:
    """A pass of a model over a share of the batches that makes statistics which were given up before it.

    Those that a training loop goes on with follow the last batches; these are of all of them in the original.

    Args:
        event: of the abstract run.
        events: all of them.
    """
    if event.kind != "statistics.made" or event.loops[-1].trains:
        return
    begun = None
    for other in events[: next(number for number, one in enumerate(events) if one is event)]:
        if other.kind == "statistics.reset":
            begun = Reason(f"`{other.name}`", other.module.path, other.line)
        elif other.kind in _TRAINS:
            begun = None
    if begun is not None:
        text = (
            f"`{event.name}` makes the statistics of the model's layers anew, of each process's share of the batches; "
            "go through all batches on every process"
        )
        yield made(replace(event, kind="state.write"), "same", Status.NAMED, text, begun)
