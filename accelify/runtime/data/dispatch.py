"""The main process reads and sends every rank its share, for sources that only one process can read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils.data import BatchSampler, DataLoader, IterableDataset

from ..collectives import broadcast_object
from ..nested import find_batch_size
from ..state import PartialState
from .index_streams import keeps_batches, with_last
from .iterable import join_batches, slice_samples
from .loaders import DataLoaderShard, index_source
from .parcels import scatter
from .sharding import Shares, share_sizes
from .unfilled import Unfilled


class DataLoaderDispatcher(DataLoaderShard):
    """A prepared loader that only the main process reads.

    Args:
        base_dataloader, device, rng_types, non_blocking: as for DataLoaderShard.
        split_batches: see `DataLoaderConfiguration`.
        slice_fn: `f(batch, slice)` cuts a batch; default: tensors, and lists of one entry a sample.
    """

    def __init__(
        self,
        base_dataloader: DataLoader[Any],
        device: torch.device | None = None,
        rng_types: list[Any] | None = None,
        non_blocking: bool = False,
        split_batches: bool = False,
        slice_fn: Callable[..., Any] | None = None,
    ) -> None:
        super().__init__(base_dataloader, device, rng_types, non_blocking, sharded=True)
        values = self.__dict__
        values["split_batches"] = split_batches
        values["slice_fn"] = slice_fn
        values["shard"] = None
        values["_carries_shares"] = True
        values["_unfilled"] = Unfilled(PartialState().data_ranks)

    def __len__(self) -> int:
        batches = len(self.base_dataloader)
        if self.split_batches:
            return batches
        ranks = PartialState().data_ranks
        return batches // ranks if self.base_dataloader.drop_last else -(-batches // ranks)

    def _before_pass(self) -> int | None:
        super()._before_pass()
        # Only the main process draws; the others do not touch its stream.
        return int(broadcast_object(torch.initial_seed() + self.epoch))

    def _may_fetch_ahead(self) -> bool:
        return False

    def _expected_batches(self) -> int | None:
        return None

    def _skips_by_index(self) -> bool:
        return False

    def _start_pass(self, skip: int, after_skip: Callable[[], None] | None) -> Iterator[Any]:
        process = PartialState()
        return self._send() if process.is_main_process else self._receive()

    def _send(self) -> Iterator[Any]:
        process = PartialState()
        ranks = process.data_ranks
        size = 1 if self.split_batches else ranks
        whole = bool(self.base_dataloader.drop_last)
        for group, last in with_last(iter(self.base_dataloader), size, whole, self._unfilled):
            parts, shares = self._parts(group, ranks, last)
            mine = [(part, shares) for part in parts for _ in range(process.ranks_per_batch)]
            yield scatter(mine)
        scatter([None] * process.num_processes)

    @staticmethod
    def _receive() -> Iterator[Any]:
        while (item := scatter(None)) is not None:
            yield item

    def _parts(self, group: list[Any], ranks: int, last: bool) -> tuple[list[Any], Shares]:
        counts = [find_batch_size(b) for b in group]
        if None in counts:
            return _filled(group, [1] * len(group), ranks, last)
        sizes = [n for n in counts if n is not None]
        source = self.base_dataloader
        whole = not isinstance(source.dataset, IterableDataset) and keeps_batches(
            _repeated(index_source(source))
        )
        even = len(group) == ranks and not (last and len(set(sizes)) > 1)
        if not self.split_batches and ranks > 1 and (whole or even):
            return _filled(group, sizes, ranks, last)
        batch = group[0] if len(group) == 1 else join_batches(group)
        samples = sum(sizes)
        cut = share_sizes(samples, ranks)
        parts, start = [], 0
        for n in cut:
            part = slice(start, start + n) if n else slice(samples - 1, samples)
            start += n
            parts.append(self.slice_fn(batch, part) if self.slice_fn else slice_samples(batch, part, samples))
        return parts, Shares(cut, len(group), last)


def _repeated(batch_sampler: Any) -> Any:
    """The batch sampler whose batches another one, which has nothing else, gives over and over; else itself."""
    parts = list(getattr(batch_sampler, "__dict__", {}).values())
    return parts[0] if len(parts) == 1 and isinstance(parts[0], BatchSampler) else batch_sampler


def _filled(group: list[Any], sizes: list[int], ranks: int, last: bool) -> tuple[list[Any], Shares]:
    """A whole batch for every rank; those without a real one get the last again."""
    missing = ranks - len(group)
    return group + group[-1:] * missing, Shares((*sizes, *[0] * missing), len(group), last, whole=True)
