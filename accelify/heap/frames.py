"""Calls that are being gone through."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from accelify.heap.memory import Known
from accelify.heap.pieces import Written
from accelify.heap.values import Guard, Value


@dataclass(frozen=True, slots=True)
class Early:
    """A way that returns before the rest of a call, where a condition that is the same on all ranks says so: which of
    the events, the values and the writes are of it, and whom to tell that several processes do not go it."""

    events: slice
    returned: slice
    left: int
    decided: Callable[[], None]


class Frame:
    """One call that is being gone through: what it returns and yields, and the writes on the ways that leave early."""

    def __init__(self, guards: int, rounds: int) -> None:
        self.guards = guards
        # In how many loops it was begun.
        self.rounds = rounds
        # What the statements in its loops did that were gone through.
        self.known: Known = {}
        self.returned: list[tuple[Value, Guard | None]] = []
        self.yielded: Value | None = None
        self.yielded_shared = False
        # Whether the main process reaches a `yield` before the others.
        self.first = False
        self.left: list[tuple[Written, Guard | None]] = []
        self.early: list[Early] = []
