"""How a script's DataLoader is prepared: each rank gets its share of what it draws."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset
from torch.utils.data.dataloader import _BaseDataLoaderIter
from torch.utils.data.distributed import DistributedSampler

from ..state import PartialState
from .dispatch import DataLoaderDispatcher
from .index_streams import make_seedable
from .iterable import IterableDatasetShard, SharedCollate
from .loaders import DataLoaderShard, copy_with
from .sharding import BatchSamplerShard, WholeBatchShard
from .workers import WorkersApart


def prepare_data_loader(
    dataloader: DataLoader[Any],
    device: torch.device | None = None,
    num_processes: int | None = None,
    process_index: int | None = None,
    split_batches: bool = False,
    put_on_device: bool = False,
    rng_types: list[Any] | None = None,
    dispatch_batches: bool | None = None,
    even_batches: bool = True,
    use_seedable_sampler: bool = False,
    data_seed: int | None = None,
    non_blocking: bool = False,
    slice_fn_for_dispatch: Callable[..., Any] | None = None,
) -> DataLoaderShard:
    """Make a loader give each rank its share.

    Args:
        dataloader: the script's loader.
        device: where batches go with `put_on_device`.
        num_processes, process_index: default: those of the running processes.
        split_batches, dispatch_batches, even_batches, use_seedable_sampler, data_seed, non_blocking: see
            `DataLoaderConfiguration`.
        rng_types: generators to synchronise before each pass, besides what the order needs.
        slice_fn_for_dispatch: `f(batch, slice)` cuts a batch that the main process sends; default: tensors, and
            lists of one entry a sample.

    Raises:
        TypeError: `dataloader` is not a torch DataLoader.
    """
    if not isinstance(dataloader, DataLoader):
        raise TypeError(f"prepare_data_loader needs a torch DataLoader, not {type(dataloader).__name__}")
    if isinstance(dataloader, DataLoaderShard):
        return dataloader
    process = PartialState()
    ranks = process.data_ranks if num_processes is None else num_processes
    rank = process.data_rank if process_index is None else process_index
    target = device if put_on_device else None
    base: DataLoader[Any] = dataloader
    batch_sampler = base.batch_sampler
    if use_seedable_sampler and batch_sampler is not None:
        make_seedable(batch_sampler, data_seed)
    # Ranks that work on the same batches have to draw the same ones: they are sharded among one.
    alone = ranks == 1 and (num_processes is not None or process.num_processes == 1)
    if alone or _is_sharded_already(base, ranks, rank):
        return DataLoaderShard(base, target, rng_types, non_blocking)
    if dispatch_batches or (dispatch_batches is None and _has_begun(base)):
        return DataLoaderDispatcher(
            base, target, rng_types, non_blocking, split_batches, slice_fn_for_dispatch
        )
    if isinstance(base.dataset, IterableDataset):
        base = _shard_iterable(base, ranks, rank, split_batches, even_batches)
    elif batch_sampler is not None:
        shard = BatchSamplerShard(batch_sampler, ranks, rank, split_batches, even_batches)
        apart: dict[str, Any] = {}
        if rank and base.num_workers:
            apart["worker_init_fn"] = WorkersApart(base.worker_init_fn, rank)
        base = copy_with(base, batch_sampler=shard, in_order=True, **apart)
    else:
        base = copy_with(
            base, sampler=WholeBatchShard(base.sampler, ranks, rank, split_batches), in_order=True
        )
    return DataLoaderShard(base, target, rng_types, non_blocking, original=dataloader, sharded=True)


def _has_begun(loader: DataLoader[Any]) -> bool:
    """Whether a loader of a subclass goes on with an iterator that it has begun itself, as those do that keep
    their workers from epoch to epoch: what it draws from cannot be changed any more, so one process reads it."""
    parts = [part for name, part in vars(loader).items() if name != "_iterator"]
    return type(loader).__iter__ is not DataLoader.__iter__ and any(
        isinstance(p, _BaseDataLoaderIter) for p in parts
    )


# What samplers and data sets of libraries call their rank, and the number of ranks; with or without an underscore.
_OWN = ("rank", "process_index", "global_rank", "dist_rank")
_COUNTS = ("num_replicas", "world_size", "num_processes", "num_ranks", "dist_num_replicas")
# So far samplers and data sets contain others.
_DEPTH = 4


def _is_sharded_already(loader: DataLoader[Any], ranks: int, rank: int) -> bool:
    """Whether a loader gives this rank its share without being prepared for it."""
    sampler = getattr(loader.batch_sampler, "sampler", loader.sampler)
    if isinstance(sampler, DistributedSampler):
        return True
    return ranks > 1 and any(
        _names_its_rank(part, ranks, rank)
        for whole in (loader.batch_sampler, sampler, loader.dataset)
        for part in _with_contained(whole)
    )


def _with_contained(part: Any) -> Iterator[Any]:
    """A sampler or data set, and the one that it reads, and so on."""
    for _ in range(_DEPTH):
        if part is None:
            return
        yield part
        part = getattr(part, "sampler", getattr(part, "dataset", None))


def _names_its_rank(part: Any, ranks: int, rank: int) -> bool:
    """Whether a sampler or data set is this rank's by its attributes, as torch's and those of other libraries are."""
    # The datasets library stores it here, for streams that `split_dataset_by_node` has divided.
    part = getattr(part, "_distributed", None) or part

    def says(names: tuple[str, ...], number: int) -> bool:
        found = [getattr(part, prefix + name, None) for name in names for prefix in ("", "_")]
        return any(type(value) is int and value == number for value in found)

    return says(_OWN, rank) and says(_COUNTS, ranks)


def _shard_iterable(
    loader: DataLoader[Any], ranks: int, rank: int, split_batches: bool, even_batches: bool
) -> DataLoader[Any]:
    dataset = IterableDatasetShard(
        loader.dataset,
        batch_size=loader.batch_size or 1,
        drop_last=loader.drop_last,
        num_processes=ranks,
        process_index=rank,
        split_batches=split_batches,
        even_batches=even_batches,
        as_batches=True,
        batched=loader.batch_size is None,
    )
    collate = SharedCollate(loader.collate_fn, loader.batch_size is None)
    return copy_with(
        loader,
        dataset=dataset,
        batch_size=None,
        batch_sampler=None,
        drop_last=False,
        collate_fn=collate,
        in_order=True,
    )
