"""What a script moved to the device and a conversion leaves to `prepare`: it lies there at each use."""

from __future__ import annotations

from collections.abc import Iterator

from accelify.heap.moved import Moved
from accelify.obligations.obligation import Obligation, Status

_TEXT = (
    "`{}` is moved to the device here, which convert leaves to prepare, and prepare does not put it there before it is "
    "used; keep the move, as .to(accelerator.device), or prepare it"
)


def placed(moved: Moved) -> Iterator[Obligation]:
    """What the moves that are gone require, those that were come to.

    Args:
        moved: the moves, and the uses of what is not known to be on the device.
    """
    for move, here in moved.come_to.items():
        use = moved.unplaced.get(move)
        status = Status.PROVED if use is None else Status.NAMED
        text, why = ("", None) if use is None else (_TEXT.format(here.text), use)
        yield Obligation("move", "moved", here.path, here.line, 1, status, text, why)
