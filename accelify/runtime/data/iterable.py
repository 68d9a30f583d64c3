"""Sharing out datasets that can only be read from front to back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch.utils.data import IterableDataset

from ..nested import concatenate, find_batch_size, honor_type, leaves, slice_tensors
from .index_streams import with_last
from .sharding import Shares, divide, share_sizes
from .unfilled import Unfilled


class SharedCollate:
    """Collates this rank's samples and passes the shares along with the batch."""

    def __init__(self, collate_fn: Callable[[Any], Any], batched: bool) -> None:
        self.collate_fn = collate_fn
        self.batched = batched

    def __call__(self, item: tuple[Any, Shares]) -> tuple[Any, Shares]:
        samples, shares = item
        return self.collate_fn(samples), shares


class IterableDatasetShard(IterableDataset[Any]):
    """One rank's samples of an iterable dataset. Every rank reads all of it and yields only its share.

    Args:
        dataset: the original's.
        batch_size: of the original's loader.
        drop_last: leave out a last batch that is not full.
        num_processes, process_index: how many ranks there are, and which this is.
        split_batches: see `DataLoaderConfiguration`.
        even_batches: a rank whose last share is empty gets one sample again.
        as_batches: yield `(samples, Shares)` for a prepared loader; False: single samples.
        batched: the dataset yields whole batches itself (`batch_size=None`).
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int = 1,
        drop_last: bool = False,
        num_processes: int = 1,
        process_index: int = 0,
        split_batches: bool = False,
        even_batches: bool = True,
        as_batches: bool = False,
        batched: bool = False,
    ) -> None:
        self.dataset = dataset
        self.batch_size = batch_size
        self.drop_last = drop_last
        self.num_processes = num_processes
        self.process_index = process_index
        self.split_batches = split_batches
        self.even_batches = even_batches
        self.as_batches = as_batches
        self.batched = batched
        self._unfilled = Unfilled(num_processes)

    def set_epoch(self, epoch: int) -> None:
        """Passed on to the dataset, if it wants to know."""
        if hasattr(self.dataset, "set_epoch"):
            self.dataset.set_epoch(epoch)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "dataset":
            raise AttributeError(name)
        return getattr(self.dataset, name)

    def __len__(self) -> int:
        samples = len(self.dataset)
        per_batch = 1 if self.batched else self.batch_size
        batches = samples // per_batch if self.drop_last else -(-samples // per_batch)
        if not self.split_batches:
            full, rest = divmod(batches, self.num_processes)
            if self.batched:
                batches = full + rest
            else:
                batches = full if self.drop_last or not rest else full + 1
        return batches if self.as_batches else batches * per_batch

    def _batches(self) -> Iterator[list[Any]]:
        batch: list[Any] = []
        for sample in self.dataset:
            batch.append(sample)
            if len(batch) == self.batch_size:
                yield batch
                batch = []
        if batch and not self.drop_last:
            yield batch

    def __iter__(self) -> Iterator[Any]:
        if self.batched:
            yield from self._whole_batches()
            return
        size = 1 if self.split_batches else self.num_processes
        for group, last in with_last(self._batches(), size, self.drop_last, self._unfilled):
            own, shares = divide(
                group,
                self.num_processes,
                self.process_index,
                last=None,
                split=self.split_batches,
                pool=len(group) < size or (last and len({len(b) for b in group}) > 1),
                even=self.even_batches,
            )
            if not own:
                return
            if self.as_batches:
                yield own, shares
            else:
                yield from own

    def _whole_batches(self) -> Iterator[Any]:
        """The dataset yields batches: cut each one, or take turns and cut those of the last group."""
        ranks, rank = self.num_processes, self.process_index
        size = 1 if self.split_batches else ranks
        for group, _ in with_last(iter(self.dataset), size):
            if not self.split_batches and len(group) == size:
                counts = tuple(find_batch_size(b) or 1 for b in group)
                yield group[rank], Shares(counts, size)
                continue
            for batch in group:
                yield cut_batch(batch, ranks, rank)


def cut_batch(
    batch: Any, ranks: int, rank: int, batches: int = 1, last: bool | None = None
) -> tuple[Any, Shares]:
    """One rank's share of a batch that was loaded whole; without any tensor, every rank has all of it."""
    samples = find_batch_size(batch)
    if samples is None:
        return batch, Shares((1,) * ranks, batches, last)
    sizes = share_sizes(samples, ranks)
    start = sum(sizes[:rank])
    part = slice(start, start + sizes[rank]) if sizes[rank] else slice(samples - 1, samples)
    return slice_samples(batch, part, samples), Shares(sizes, batches, last)


def slice_samples(batch: Any, part: slice, samples: int) -> Any:
    """Slice tensors along their first dimension, and lists of one entry a sample, such as strings."""
    if isinstance(batch, (list, tuple)) and len(batch) == samples and not any(map(_holds_tensors, batch)):
        return batch[part]
    if isinstance(batch, Mapping):
        cut = {k: slice_samples(v, part, samples) for k, v in batch.items()}
        return cut if type(batch) is dict else type(batch)(cut)  # type: ignore[call-arg]
    if isinstance(batch, (list, tuple)):
        return honor_type(batch, (slice_samples(v, part, samples) for v in batch))
    return slice_tensors(batch, part)


def join_batches(batches: list[Any]) -> Any:
    """Batches of one form joined: tensors along their first dimension, lists of other values as lists."""
    first = batches[0]
    if isinstance(first, torch.Tensor):
        return concatenate(batches)
    if isinstance(first, Mapping):
        joined = {k: join_batches([b[k] for b in batches]) for k in first}
        return joined if type(first) is dict else type(first)(joined)  # type: ignore[call-arg]
    if isinstance(first, (list, tuple)):
        if not _holds_tensors(first):
            return [item for b in batches for item in b]
        return honor_type(first, (join_batches([b[i] for b in batches]) for i in range(len(first))))
    return first


def _holds_tensors(item: Any) -> bool:
    return any(isinstance(leaf, torch.Tensor) for leaf in leaves(item))
