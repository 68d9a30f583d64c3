"""Which samples of which batch belong to which rank.

The ranks' shares of a batch, put one after another, are the batch of the original script in its order; no sample
is there twice and none is missing. A rank whose share is empty gets one sample again, which weighs nothing; where
batches must stay whole, a batch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch.utils.data import (
    BatchSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from ..state import PartialState
from .unfilled import Unfilled

RANDOM_SAMPLERS = (RandomSampler, SubsetRandomSampler, WeightedRandomSampler)
# Index lists of samplers that may never end travel in pieces of this many batches.
_PIECE = 1024
# As many batches as an epoch that ends has at most.
_LONGEST = 1 << 20


@dataclass(frozen=True, slots=True)
class Shares:
    """How one step's samples are divided.

    Args:
        sizes: samples of its own for every rank.
        batches: batches of the original script that this step stands for.
        last: the loader ends with it; None where that is not known.
        whole: a rank without samples of its own has a whole batch again, and not one sample.
        own: samples of this rank's batch, where `sizes` only says which ranks have one of their own: of batches that
            the data set makes, only the rank that has read one knows how many samples it has.
    """

    sizes: tuple[int, ...]
    batches: int = 1
    last: bool | None = None
    whole: bool = False
    own: int | None = None

    @property
    def weights(self) -> tuple[float, ...]:
        """`weight` of every rank."""
        return tuple(self.weight(rank) for rank in range(len(self.sizes)))

    def weight(self, rank: int) -> float:
        """What the mean over this rank's share is multiplied by, so that the mean over ranks is the batch's."""
        total = sum(self.sizes)
        return self.sizes[rank] * len(self.sizes) / total if total else 0.0


def share_sizes(samples: int, ranks: int) -> tuple[int, ...]:
    """`samples` cut in `ranks` parts as even as possible: 11 on 4 is 3, 3, 3, 2."""
    base, extra = divmod(samples, ranks)
    return tuple(base + (r < extra) for r in range(ranks))


def own_share(samples: list[Any], sizes: tuple[int, ...], rank: int, fill: bool = True) -> list[Any]:
    """This rank's part of `samples`; with `fill`, an empty one becomes the last sample, which then weighs nothing."""
    start = sum(sizes[:rank])
    part = samples[start : start + sizes[rank]]
    return part if part or not fill else samples[-1:]


def divide(
    group: list[list[Any]],
    ranks: int,
    rank: int,
    *,
    last: bool | None,
    split: bool,
    pool: bool,
    even: bool,
    whole: bool = False,
) -> tuple[list[Any], Shares]:
    """This rank's samples of a group of original batches, and the shares of all.

    Args:
        group: the original batches of this step: one when `split`, else up to one for each rank.
        pool: put the group's samples together and cut them evenly (a split batch, or the last group of an epoch).
        even: a rank without samples gets one all the same.
        whole: a rank without a batch gets the last one again, all of it.
    """
    if split or (pool and even):
        samples = [s for batch in group for s in batch]
        sizes = share_sizes(len(samples), ranks)
        return own_share(samples, sizes, rank, fill=even), Shares(sizes, len(group), last)
    sizes = tuple(len(group[r]) if r < len(group) else 0 for r in range(ranks))
    own = list(group[rank]) if rank < len(group) else list(group[-1]) if whole else []
    return own, Shares(sizes, len(group), last, whole)


def with_last(
    items: Iterator[Any], size: int, whole: bool = False, unfilled: Callable[[int], None] | None = None
) -> Iterator[tuple[list[Any], bool]]:
    """Groups of `size` items, each with whether it is the last; with `whole`, one that is not full is left out.

    Where that leaves no group at all, `unfilled` is told how many items there were.
    """

    def take(first: bool = False) -> list[Any]:
        group = list(islice(items, size))
        if not whole or len(group) == size:
            return group
        if first and group and unfilled is not None:
            unfilled(len(group))
        return []

    group = take(first=True)
    while group:
        following = take()
        yield group, not following
        group = following


class BatchSamplerShard(BatchSampler):
    """One rank's part of a batch sampler.

    Args:
        batch_sampler: the original's; yields lists of indices.
        num_processes, process_index: how many ranks there are, and which this is.
        split_batches: every batch is cut in shares. Otherwise a rank takes whole batches, rank r batch i*N+r,
            and the last incomplete group is cut evenly over all (with drop_last it is left out). Batches of a sampler
            that is not torch's stay whole: which samples make a batch may be what it is for. A rank that is left
            without one repeats the last, which then weighs nothing.
        even_batches: every rank yields the same number of batches; False: as far as the batches reach.
    """

    def __init__(
        self,
        batch_sampler: Any,
        num_processes: int = 1,
        process_index: int = 0,
        split_batches: bool = False,
        even_batches: bool = True,
    ) -> None:
        self.batch_sampler = batch_sampler
        self.num_processes = num_processes
        self.process_index = process_index
        self.split_batches = split_batches
        self.even_batches = even_batches
        self.sampler: Any = getattr(batch_sampler, "sampler", None)
        self.batch_size: Any = getattr(batch_sampler, "batch_size", None)
        self.drop_last = bool(getattr(batch_sampler, "drop_last", False))
        self._unfilled = Unfilled(num_processes)
        # The next pass leaves out so many batches, and calls this before it goes on with the rest.
        self.skip_batches = 0
        self.after_skip: Callable[[], None] | None = None
        # Shares of the batches drawn and not yet taken by the loader; one queue for each pass.
        self.shares: deque[Shares] = deque()

    @property
    def total_length(self) -> int:
        return len(self.batch_sampler)

    def __len__(self) -> int:
        batches = len(self.batch_sampler)
        if self.split_batches:
            return batches
        full, rest = divmod(batches, self.num_processes)
        if self.drop_last or not rest:
            return full
        return full + (1 if self.even_batches or self.process_index < rest else 0)

    def __iter__(self) -> Iterator[list[Any]]:
        self.shares = deque()
        return self._draw(self.shares)

    def _draw(self, shares: deque[Shares]) -> Iterator[list[Any]]:
        size = 1 if self.split_batches else self.num_processes
        skip, self.skip_batches = self.skip_batches, 0
        after_skip, self.after_skip = self.after_skip, None
        whole = self.even_batches and keeps_batches(self.batch_sampler)
        batches = index_batches(self.batch_sampler, self.num_processes, self.process_index)
        for number, (group, last) in enumerate(with_last(batches, size, self.drop_last, self._unfilled)):
            if number < skip:
                continue
            if after_skip is not None:
                after_skip()
                after_skip = None
            short = len(group) < size or (last and len({len(b) for b in group}) > 1)
            own, parts = divide(
                [list(b) for b in group],
                self.num_processes,
                self.process_index,
                last=last,
                split=self.split_batches,
                pool=short and not whole,
                even=self.even_batches,
                whole=whole,
            )
            if not own:
                return
            shares.append(parts)
            yield own
        if after_skip is not None:
            after_skip()


class SkipBatchSampler(BatchSampler):
    """A batch sampler without its first batches. The order is still drawn whole, so it is that of a full pass.

    Args:
        batch_sampler: the original's.
        skip_batches: how many to leave out.
        after_skip: called before the rest is drawn.
    """

    def __init__(
        self, batch_sampler: Any, skip_batches: int = 0, after_skip: Callable[[], None] | None = None
    ) -> None:
        self.batch_sampler = batch_sampler
        self.skip_batches = skip_batches
        self.after_skip = after_skip
        self.sampler: Any = getattr(batch_sampler, "sampler", None)
        self.batch_size: Any = getattr(batch_sampler, "batch_size", None)
        self.drop_last = getattr(batch_sampler, "drop_last", False)

    def __iter__(self) -> Iterator[Any]:
        batches = iter(self.batch_sampler)
        for _ in range(self.skip_batches):
            next(batches, None)
        first = next(batches, None)
        if self.after_skip is not None:
            self.after_skip()
        if first is not None:
            yield first
            yield from batches

    def __len__(self) -> int:
        return max(0, len(self.batch_sampler) - self.skip_batches)


def shuffles(batch_sampler: Any) -> bool:
    """Whether the order is drawn anew each pass by one of torch's own random samplers."""
    return type(getattr(batch_sampler, "sampler", batch_sampler)) in RANDOM_SAMPLERS


def _knows_its_order(batch_sampler: Any) -> bool:
    """Whether every rank draws the same order by itself, once the random states are the same."""
    own = (*RANDOM_SAMPLERS, SequentialSampler, SeedableRandomSampler)
    inner = batch_sampler.sampler if type(batch_sampler) is BatchSampler else batch_sampler
    return type(inner) in own


def keeps_batches(batch_sampler: Any) -> bool:
    """Whether batches are to stay whole: which samples make one may be what their sampler is for."""
    return not _knows_its_order(batch_sampler)


def index_batches(batch_sampler: Any, ranks: int, rank: int) -> Iterator[Any]:
    """The original's batches of indices, the same on every rank.

    Nothing is known of samplers that are not torch's, such as where they take their randomness from: rank 0 runs
    them and sends its list to the others.
    """
    if not torch.distributed.is_initialized() or _knows_its_order(batch_sampler):
        yield from batch_sampler
        return
    if ranks == 1 and PartialState().ranks_per_batch == 1:
        yield from batch_sampler
        return
    from ..collectives import broadcast_object

    source = iter(batch_sampler) if rank == 0 else iter(())
    length = length_of(batch_sampler)
    # All of an epoch and one more: who says it is longer than any may never end, as one without a length.
    piece = length + 1 if length is not None and length < _LONGEST else _PIECE
    while True:
        batches = broadcast_object([_alone(b) for b in islice(source, piece)] if rank == 0 else None)
        yield from batches
        if len(batches) < piece:
            return


def length_of(batches: Any) -> int | None:
    """How many batches a sampler or loader says it has; None without a length, or where that is known behind its order.

    TypeError and NotImplementedError are how torch's say that they have none. A loader of plain torch does not ask its
    sampler before it draws: `len(self.order)` of an order made by `__iter__` is an AttributeError until then.
    """
    try:
        return len(batches)
    except (TypeError, NotImplementedError, AttributeError):
        return None


def _alone(batch: Any) -> Any:
    """A batch of indices whose tensors are no views: pickle writes the whole storage behind each view."""
    if isinstance(batch, torch.Tensor):
        return batch.clone()
    return [_alone(index) for index in batch] if type(batch) is list else batch


class SeedableRandomSampler(RandomSampler):
    """A RandomSampler whose order depends on its seed and epoch alone.

    Args:
        data_source, replacement, num_samples, generator: as torch's.
        data_seed: seed of epoch 0; default: torch's initial seed.
    """

    def __init__(self, *args: Any, data_seed: int | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.initial_seed = torch.random.initial_seed() if data_seed is None else data_seed
        self.epoch = 0

    def __iter__(self) -> Iterator[int]:
        generator = torch.Generator()
        generator.manual_seed((self.initial_seed + self.epoch) % 2**63)
        self.epoch += 1
        yield from RandomSampler(self.data_source, self.replacement, self._num_samples, generator)

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch whose order the next pass has."""
        self.epoch = epoch


# Marks a whole batch that is cut in shares only after it was loaded.
CUT_LATER = ()


class WholeBatchShard(Sampler[Any]):
    """One rank's part of a sampler whose every index is a batch (`batch_size=None`).

    Ranks take turns; with `split_batches`, and in the last incomplete turn, every rank loads the batch and keeps its
    share of it. Batches of a sampler that is not torch's stay whole in that turn, as those of BatchSamplerShard.
    """

    def __init__(
        self, sampler: Any, num_processes: int, process_index: int, split_batches: bool = False
    ) -> None:
        self.sampler = sampler
        self.num_processes = num_processes
        self.process_index = process_index
        self.split_batches = split_batches
        self.shares: deque[Shares] = deque()

    def __len__(self) -> int:
        if self.split_batches:
            return len(self.sampler)
        full, rest = divmod(len(self.sampler), self.num_processes)
        return full + (min(rest, 1) if keeps_batches(self.sampler) else rest)

    def __iter__(self) -> Iterator[Any]:
        self.shares = deque()
        return self._draw(self.shares)

    def _draw(self, shares: deque[Shares]) -> Iterator[Any]:
        size = 1 if self.split_batches else self.num_processes
        indices = index_batches(self.sampler, self.num_processes, self.process_index)
        for group, last in with_last(indices, size):
            if size > 1 and (len(group) == size or keeps_batches(self.sampler)):
                sizes = tuple(int(r < len(group)) for r in range(size))
                shares.append(Shares(sizes, len(group), last, whole=True))
                yield group[min(self.process_index, len(group) - 1)]
                continue
            for i, index in enumerate(group):
                shares.append(Shares(CUT_LATER, 1, last and i + 1 == len(group)))
                yield index


def make_seedable(batch_sampler: Any, seed: int | None) -> None:
    """Let a loader's random sampler draw its order from a seed and the epoch alone."""
    sampler = getattr(batch_sampler, "sampler", None)
    if type(batch_sampler) is BatchSampler and type(sampler) is RandomSampler:
        batch_sampler.sampler = SeedableRandomSampler(
            sampler.data_source,
            replacement=sampler.replacement,
            num_samples=sampler._num_samples,
            generator=sampler.generator,
            data_seed=seed,
        )
