"""The random streams of one pass of a loader: equal on all ranks before its first batch and after it, not within."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..state import PartialState
from .random_state import (
    DataStream,
    Resume,
    move_apart,
    next_pass,
    note_last,
    rejoin,
    rejoin_within,
    stream_number,
)

if TYPE_CHECKING:
    from .loaders import DataLoaderShard


class PassStreams:
    """Where the ranks of one pass draw from.

    A pass in a random order separates the streams with its first batch. One in the order of the data may be an
    evaluation, which not every rank has to reach, and no communication finds that out; it separates them with its first
    backward pass, and its loader's later passes are like those in a random order.

    Args:
        loader: what is read.
        number: of the pass, the same on every rank; None where its first batch parts nothing.
        resume: it goes on where a checkpoint was taken, with the streams that the ranks had there.
    """

    def __init__(self, loader: DataLoaderShard, number: int | None, resume: Resume | None) -> None:
        self.loader = loader
        self.trained_before = loader.trained
        self._resumed = resume is not None
        self._data = DataStream() if loader._draws_while_read else None
        # Whether its streams part, or have parted.
        self.parted = number is not None or self._data is not None
        # Whether a loss was of one of its batches.
        self.trains = False
        # Whether a backward pass would part them.
        self._waits = not self.parted and loader._sharded and PartialState().num_processes > 1
        if self._waits and resume is not None and resume.parted:
            loader.trained = self.parted = True
            self._waits = False
        self._pass = loader._open_pass() if self.parted else None
        self._is_last = False
        # Streams are separated from here on within this pass.
        self._within = next_pass()
        # The number until the first batch, the way back from then on.
        self._apart: Any = None if number is None or self._resumed else number + loader.epoch
        if self._resumed and self._data is not None:
            self._data.number = None

    def read(self, fetch: Callable[[], Any]) -> Any:
        """What `fetch` reads, on the stream of a data set that draws while it is read."""
        return fetch() if self._data is None else self._data.read(fetch)

    def _end_batch(self, at_end: bool) -> None:
        """The script is done with the batch before. In a pass that trains every rank comes here."""
        between = self.loader.between_batches
        if self.trains and between is not None and self._pass is not None:
            between(at_end)

    def begin_batch(self) -> None:
        """The script continues with a batch."""
        self._end_batch(at_end=False)
        if isinstance(self._apart, int):
            self._apart = move_apart(self._apart)

    def give_last(self) -> None:
        """The batch that the script continues with is the last one."""
        self._is_last = True
        if self._pass is not None:
            note_last(self._pass)

    def note_backward(self) -> None:
        """The pass trains: every rank reaches its end."""
        self.trains = True
        if not self._waits:
            return
        self._waits = False
        self._pass = self.loader._open_pass()
        if self._pass is None:
            return  # ranks reach its end at different times
        if self._is_last:
            note_last(self._pass)
        self.loader.trained = self.parted = True
        if not self._resumed:
            self._apart = move_apart(stream_number() + self.loader.epoch)

    def end(self) -> None:
        """After the last batch."""
        self._end_batch(at_end=True)
        if self._pass is not None:
            rejoin(self._pass)
            self._pass = None
        elif self._waits and self.loader._ends_together:
            rejoin_within(self._within)

    def leave(self) -> None:
        """A first look at a batch is over."""
        if callable(self._apart) and self.loader.epoch == 0:
            self._apart()
