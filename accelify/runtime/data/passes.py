"""One pass of a prepared loader: its batches, their shares, where it is and where it ends."""

from __future__ import annotations

import contextlib
import time
import weakref
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..nested import find_batch_size
from ..open_passes import storages
from ..state import PartialState
from .iterable import cut_batch
from .random_state import random_snapshot
from .sharding import Shares, WholeBatchShard
from .streams import PassStreams

if TYPE_CHECKING:
    from .loaders import DataLoaderShard

_END = object()
# The length of a pass that has not been read yet. Reading it may run code of the script, even draw random numbers.
_NOT_ASKED = -1
# Seconds of reading skipped batches again after which a message is printed.
_TELL = 10.0


class LoaderIterator:
    """One pass of a prepared loader."""

    __slots__ = (
        "__weakref__",
        "_ahead",
        "_base",
        "_batch",
        "_buffer",
        "_ended",
        "_entry",
        "_expected",
        "_fed",
        "_shares",
        "beginning",
        "fetched",
        "first",
        "loader",
        "position",
        "sampler_epoch",
        "shares",
        "streams",
    )

    def __init__(self, loader: DataLoaderShard, skip: int = 0) -> None:
        self.loader = loader
        self._ended = False
        self.shares: Shares | None = None
        # Where several passes are open: its batch, which shows whose batch a model gets.
        self._batch: Any = None
        resume = loader._take_resume()
        after_skip = None
        if resume is not None:
            skip, after_skip = resume.position, resume.go_on
            resume.go_back()
        self.position = skip
        # The number of its last batch among those of all passes.
        self.fetched = 0
        number = loader._before_pass()
        self.beginning = random_snapshot(loader._generators())
        self.sampler_epoch = getattr(loader._sampler(), "epoch", None)
        self.streams = PassStreams(loader, number, resume)
        by_index = loader._skips_by_index() and not (resume is not None and loader._workers_may_draw())
        self._base: Any = loader._start_pass(skip if by_index else 0, after_skip if by_index else None)
        loader._read_apart(self._base, (number or 0) + loader.epoch, skip if by_index else 0)
        self._shares: deque[Shares] | None = loader._open_shares()
        self._expected: int | None = _NOT_ASKED
        self._ahead = self._shares is None and loader._may_fetch_ahead() and self.expected is None
        self._buffer: Any = None
        if not by_index:
            self._discard(skip)
            if after_skip is not None:
                after_skip()
        # Batches that were skipped: those that an engine feeds are counted after them.
        self.first = skip
        self._fed = loader.feed is not None
        if loader.feed is not None:
            self._base = loader.feed(self._base, loader)
        # Weakly: a loop left by break drops its iterator, and that ends the pass.
        self._entry = weakref.proxy(self)
        loader.gradient_state.loaders.begin(self._entry, loader.base_dataloader)
        if resume is not None and skip:
            loader.gradient_state.resumed = self._entry

    def __iter__(self) -> LoaderIterator:
        return self

    @property
    def expected(self) -> int | None:
        """Batches of the whole pass, where the loader knows; the shares of a sharded loader mark its end themselves."""
        if self._expected == _NOT_ASKED:
            self._expected = self.loader._expected_batches()
        return self._expected

    @property
    def at_end(self) -> bool:
        """Whether the current batch is the last."""
        if self._ended or self._ahead or self._shares is not None or self.loader._carries_shares:
            return self._ended
        return self.expected is not None and self.position >= self.expected

    @property
    def storages(self) -> set[int]:
        """Where the tensors of the current batch are, where several passes are open."""
        return {place for place in storages(self._batch) if place}

    def batches_left(self) -> int | None:
        """Batches after the current one, None where that is not known."""
        total = self.expected
        if total is None and self._shares is not None:
            total = self.loader._length()
        return None if total is None else max(0, total - self.position)

    def _discard(self, batches: int) -> None:
        begun: float | None = time.monotonic()
        for number in range(batches):
            if self._fetch() is _END:
                return
            if self._shares:
                self._shares.popleft()
            if begun is not None and time.monotonic() - begun > _TELL:
                begun = None
                PartialState().print(
                    f"accelify: the {batches} batches of the epoch that were done are read again ({number + 1} so "
                    "far); DataLoaderConfiguration(replay_workers=False) leaves them out where samples can be chosen "
                    "by index"
                )

    def __len__(self) -> int:
        return len(self.loader)

    def _fetch(self) -> Any:
        return self.streams.read(self._take)

    def _take(self) -> Any:
        try:
            return next(self._base)
        except StopIteration:
            return _END

    def __next__(self) -> Any:
        if self._ahead:
            if self._buffer is None:
                self._buffer = self._fetch()
            batch = self._buffer
            if batch is not _END:
                self._buffer = self._fetch()
                self._ended = self._buffer is _END
        else:
            batch = self._fetch()
        if batch is _END:
            self.streams.end()
            self.close()
            raise StopIteration
        self.position += 1
        loader = self.loader
        self.fetched = loader.gradient_state.loaders.note_fetch()
        self.streams.begin_batch()
        if loader._carries_shares:
            batch, self.shares = batch
            if self.shares.last is not None:
                self._ended = self.shares.last
        elif self._shares is not None:
            if not self._shares:
                raise RuntimeError(
                    f"{type(loader.original).__name__} does not draw from its batch sampler, so its batches cannot be "
                    "shared out: use DataLoaderConfiguration(dispatch_batches=True)"
                )
            self.shares = self._shares.popleft()
            self._ended = bool(self.shares.last)
            if isinstance(loader.shard, WholeBatchShard) and self.shares.sizes:
                self.shares = replace(self.shares, own=find_batch_size(batch) or 1)
            if not self.shares.sizes:
                process, known = PartialState(), self.shares
                batch, self.shares = cut_batch(
                    batch, process.data_ranks, process.data_rank, known.batches, known.last
                )
        if self._ended:
            self.streams.give_last()
        batch = batch if self._fed else loader._place(batch)
        # A reference, so that no other object gets its address; the script has one, too, until it asks for the next.
        self._batch = batch if len(loader.gradient_state.loaders) > 1 else None
        return batch

    def close(self) -> None:
        """The pass is over: the loop is outside of this loader again."""
        self._ended, self._batch = True, None
        if self._fed:
            self._base.close()
        loaders = self.loader.gradient_state.loaders
        if not loaders.end(self._entry, self.loader.base_dataloader):
            return
        if not loaders:
            self.loader.gradient_state.sync_gradients = True
            self.streams.leave()
        self.loader._after_pass()

    def __del__(self) -> None:
        # A loop left by break drops its iterator here.
        # Half-built, or the interpreter is going down: nothing is left to close.
        with contextlib.suppress(Exception):
            self.close()
