"""What one sink of a script requires, and what was found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from accelify.domains.reasons import Reason

# What is found of weights that each round changes without an optimizer, as those of a moving average.
BY_HAND = "weights that each round changes by hand"


class Status(StrEnum):
    """How an obligation stands, the better first."""

    PROVED = "proved"
    LOOP = "shown in the loop"
    ASSUMED = "assumed"
    NAMED = "named"


@dataclass(frozen=True, slots=True)
class Obligation:
    """One demand at one place.

    Args:
        sink: what the script does there: shows, writes, backward, collective, step, schedule.
        demand: what is required: once, content, path, all ranks, loss, rounds.
        path: the file, relative to the script's folder.
        line: from 1.
        column: from 1.
        status: how it stands.
        found: a few words on what was found.
        reason: where it comes from, None where it is proved.
        via: the calls that led there, by file and line, the last one first.
        asks: by what the script can ask there which process it is: its accelerator, a state, its process group, or
            nothing yet (early).
        part: which it is of several that are not met at the same place for causes of their own, from 0.
    """

    sink: str
    demand: str
    path: str
    line: int
    column: int
    status: Status
    found: str = ""
    reason: Reason | None = None
    via: tuple[tuple[str, int], ...] = ()
    asks: str = "accelerator"
    part: int = 0

    @property
    def site(self) -> tuple[str, int, int, str, str, int]:
        """What makes it the same obligation in two runs through the same place."""
        return self.path, self.line, self.column, self.sink, self.demand, self.part

    @property
    def message(self) -> str:
        """One sentence: what was found, and the chain of operations that lead there."""
        return self.sentence()

    def sentence(self, number: Callable[[str, int], int | str] = lambda path, line: line) -> str:
        """The same with lines by the number that `number` has for them."""
        chain = self.reason.sentence(self.path, number) if self.reason is not None else ""
        return ": ".join(filter(None, (self.found, chain)))
