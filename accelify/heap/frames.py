"""Calls that are being gone through."""

from __future__ import annotations

from accelify.heap.memory import Known
from accelify.heap.pieces import Written
from accelify.heap.values import Guard, Value


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
        self.left: list[tuple[Written, Guard | None]] = []
