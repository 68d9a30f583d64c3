"""How the batches of indices of the script's samplers, and of torch's, are distributed to the ranks.

Every rank draws the same order from torch's samplers by itself, and goes past what is for other ranks without looking
at it: what a step costs does not grow with the number of ranks. Nothing is known of other samplers, such as where they
take their randomness from: rank 0 runs them and sends what it draws, no sooner than the loader asks for it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from itertools import chain, islice
from operator import length_hint
from typing import Any

import torch
from torch.utils.data import (
    BatchSampler,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from ..state import GradientState, PartialState

RANDOM_SAMPLERS = (RandomSampler, SubsetRandomSampler, WeightedRandomSampler)


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


def shuffles(batch_sampler: Any) -> bool:
    """Whether the order is drawn again each pass by one of torch's random samplers."""
    return type(getattr(batch_sampler, "sampler", batch_sampler)) in RANDOM_SAMPLERS


def knows_its_order(batch_sampler: Any) -> bool:
    """Whether every rank draws the same order by itself, once the random states are the same."""
    own = (*RANDOM_SAMPLERS, SequentialSampler, SeedableRandomSampler)
    inner = batch_sampler.sampler if type(batch_sampler) is BatchSampler else batch_sampler
    return type(inner) in own


def keeps_batches(batch_sampler: Any) -> bool:
    """Whether batches are to stay whole: which samples make one may be what their sampler is for."""
    return not knows_its_order(batch_sampler)


class IndexStream:
    """One pass of one of torch's samplers, in which indices can be gone past at no cost.

    torch's samplers pass on the iterator of a list, which can be set to a place of it. Where one does not, each index
    is drawn and thrown away: the result is the same.

    Args:
        sampler: one that `knows_its_order`.
    """

    def __init__(self, sampler: Any) -> None:
        self._names: Any = None
        if type(sampler) is SubsetRandomSampler:
            self._names = sampler.indices
            self._source: Iterator[int] = _shuffled(len(sampler.indices), sampler.generator)
        else:
            self._source = iter(sampler)
        # How many were drawn one by one.
        self.drawn = 0

    def take(self, count: int) -> list[Any]:
        """The next indices, fewer at the end."""
        found = list(islice(self._source, count))
        self.drawn += len(found)
        return found if self._names is None else [self._names[i] for i in found]

    def go_past(self, count: int) -> None:
        """Leave the next indices out."""
        while count > 0:
            inner: Any = self._source
            while (deeper := getattr(inner, "gi_yieldfrom", None)) is not None:
                inner = deeper
            left = length_hint(inner) if hasattr(inner, "__setstate__") else 0
            if left <= 0:
                # Nothing is begun, or one list is at its end: the sampler itself makes the next one.
                if not self.take(1):
                    return
                count -= 1
                continue
            step = min(count, left)
            _set_forward(inner, step)
            count -= step

    def finish(self) -> None:
        """Go to the end, as a loader does that asks for one batch more.

        torch's samplers draw once again there, and the next pass goes on in the script's generator after that.
        """
        self.go_past(sys.maxsize)


def _set_forward(iterator: Any, step: int) -> None:
    """Advance the iterator of a list or a range by a number of places."""
    # (iter, (the list or the range,), place); without a place, what is left is counted from.
    place = iterator.__reduce__()[2]
    iterator.__setstate__((place or 0) + step)


def _shuffled(length: int, generator: torch.Generator | None) -> Iterator[int]:
    yield from torch.randperm(length, generator=generator).tolist()


def with_last(
    items: Iterator[Any], size: int, whole: bool = False, unfilled: Callable[[int], None] | None = None
) -> Iterator[tuple[list[Any], bool]]:
    """Groups of `size` items, each with whether it is the last; with `whole`, one that is not full is left out.

    Where that leaves no group at all, `unfilled` is called with their number.
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


def sent_groups(
    sampler: Any,
    rank: int,
    size: int,
    whole: bool = False,
    unfilled: Callable[[int], None] | None = None,
    skip: int = 0,
    after_skip: Callable[[], None] | None = None,
) -> Iterator[tuple[list[Any], bool]]:
    """`with_last` of a sampler that rank 0 alone runs; every rank has to ask for every group.

    A group is drawn when it is asked for, so that a sampler which goes by the last losses sees them. Which is the last
    one follows from the sampler's length. Without a length, and where an accumulation window must end with the loader,
    which a length that is only an estimate would leave open, one group more is drawn ahead.

    Args:
        sampler: of indices, or of batches of them.
        rank: of this process.
        size, whole, unfilled: see `with_last`.
        skip, after_skip: leave out this many groups, then call this.
    """
    from ..collectives import broadcast_object

    groups: Iterator[Any] | None = None
    if rank == 0:
        groups = _drawn_groups(sampler, size, whole, unfilled)
        for _ in range(skip):
            next(groups, None)
        if after_skip is not None and not skip:
            # By the first group the order was drawn, which belongs to the beginning.
            groups = chain(list(islice(groups, 1)), groups)
    if after_skip is not None:
        after_skip()
    while True:
        group, last, is_over = broadcast_object(None if groups is None else next(groups, ([], True, True)))
        if group:
            yield group, last
        if is_over:
            return


def _drawn_groups(
    sampler: Any, size: int, whole: bool, unfilled: Callable[[int], None] | None
) -> Iterator[tuple[list[Any], bool, bool]]:
    """Groups, whether each is the last, and whether nothing comes after it."""
    source: Iterator[Any] = map(_alone, iter(sampler))
    drawn = 0
    plugin = GradientState().plugin
    looks_ahead = plugin.num_steps > 1 and plugin.sync_with_dataloader
    length: int | None = None
    while not looks_ahead:
        group = list(islice(source, size))
        drawn += len(group)
        if drawn == len(group):
            length = length_of(sampler)  # some have one only once they have begun
        if len(group) < size:
            if group and not whole:
                yield group, True, True
            elif group and drawn < size and unfilled is not None:
                unfilled(drawn)
            return
        # Of a sampler that is longer than its length, nothing is known from there on.
        looks_ahead = length is None or drawn > length
        if looks_ahead:
            source = chain(group, source)
            break
        last = length is not None and length - drawn < (size if whole else 1)
        yield group, last, False
    yield from ((group, last, last) for group, last in with_last(source, size, whole, unfilled))


def length_of(batches: Any) -> int | None:
    """The number of batches by a sampler's or loader's length; None without one, or where it is known after its order.

    TypeError and NotImplementedError are how torch's say that they have none. A loader of plain torch does not ask its
    sampler before it draws: `len(self.order)` of an order made by `__iter__` is an AttributeError until then.
    """
    try:
        return len(batches)
    except (TypeError, NotImplementedError, AttributeError):
        return None


def is_sent(sampler: Any, ranks: int) -> bool:
    """Whether rank 0 sends what it draws from a sampler."""
    if not torch.distributed.is_initialized() or knows_its_order(sampler):
        return False
    return ranks > 1 or PartialState().ranks_per_batch > 1


def _alone(batch: Any) -> Any:
    """A batch of indices whose tensors are no views: pickle writes the whole storage of each view."""
    if isinstance(batch, torch.Tensor):
        return batch.clone()
    return [_alone(index) for index in batch] if type(batch) is list else batch
