"""Batches that a script cuts or draws by hand: each rank takes its share of the main process's."""

from __future__ import annotations

from typing import Any

import torch

from ..collectives import broadcast_tensors
from ..nested import find_batch_size, map_leaves
from ..state import PartialState
from .iterable import slice_samples
from .sharding import Shares, share_sizes


def own_share_of(batch: Any) -> tuple[Any, Shares | None]:
    """This rank's share of a batch, cut along the first dimension, and the shares of all; with one rank as it is.

    Every rank gets its part of what the main process has, so that batches drawn at random are those of the original
    even where the ranks' random streams have parted (dropout). A rank without a sample gets one that weighs nothing.

    Args:
        batch: a tensor, or a tuple, list or dictionary of tensors and lists with one entry a sample each.

    Raises:
        ValueError: nothing in it has a first dimension.
    """
    process = PartialState()
    if process.data_ranks == 1:
        return batch, None
    samples = find_batch_size(batch)
    if samples is None:
        raise ValueError("shard_batch needs tensors with one entry a sample; this batch holds none")
    tensors: list[torch.Tensor] = []

    def shared(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor) and leaf.ndim:
            # A copy: what is cut out of the data set by a slice is a view of it.
            tensors.append(leaf.detach().clone())
            return tensors[-1]
        return leaf

    batch = map_leaves(shared, batch)
    broadcast_tensors(tensors)
    sizes = share_sizes(samples, process.data_ranks)
    start = sum(sizes[: process.data_rank])
    own = sizes[process.data_rank]
    part = slice(start, start + own) if own else slice(samples - 1, samples)
    return slice_samples(batch, part, samples), Shares(sizes)
