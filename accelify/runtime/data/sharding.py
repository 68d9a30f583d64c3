"""Which samples of which batch belong to which rank.

The ranks' shares of a batch, put one after another, are the batch of the original script in its order; no sample
is there twice and none is missing. A rank whose share is empty gets one sample again, which weighs nothing; where
batches must stay whole, a batch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch.utils.data import BatchSampler, Sampler

from .index_streams import IndexStream, is_sent, keeps_batches, knows_its_order, sent_groups, with_last
from .unfilled import Unfilled


@dataclass(frozen=True, slots=True)
class Shares:
    """How one step's samples are divided.

    Args:
        sizes: the number of real samples of every rank.
        batches: batches of the original script that this step represents.
        last: the loader ends with it; None where that is not known.
        whole: a rank without real samples has a whole batch again, and not one sample.
        left_out: batches of the original script after this step that are too few for all ranks, with `drop_last`.
        own: samples of this rank's batch, where `sizes` only says which ranks have real ones: of batches that the
            data set makes, only the rank that has read one knows how many samples it has.
    """

    sizes: tuple[int, ...]
    batches: int = 1
    last: bool | None = None
    whole: bool = False
    own: int | None = None
    left_out: int = 0

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
    group: Sequence[Sequence[Any]],
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
        even: a rank without samples gets one nevertheless.
        whole: a rank without a batch gets the last one again, all of it.
    """
    if split or (pool and even):
        samples = [s for batch in group for s in batch]
        sizes = share_sizes(len(samples), ranks)
        return own_share(samples, sizes, rank, fill=even), Shares(sizes, len(group), last)
    sizes = tuple(len(group[r]) if r < len(group) else 0 for r in range(ranks))
    own = list(group[rank]) if rank < len(group) else list(group[-1]) if whole else []
    return own, Shares(sizes, len(group), last, whole)


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
        # The next pass leaves out this many batches, and calls this before it goes on with the rest.
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
        skip, self.skip_batches = self.skip_batches, 0
        after_skip, self.after_skip = self.after_skip, None
        if type(self.batch_sampler) is BatchSampler and knows_its_order(self.batch_sampler):
            parts = self._own_parts(skip, after_skip)
        else:
            parts = self._parts_of_groups(skip, after_skip)
        for own, known in parts:
            if not own:
                return
            shares.append(known)
            yield own

    def _parts_of_groups(
        self, skip: int, after_skip: Callable[[], None] | None
    ) -> Iterator[tuple[list[Any], Shares]]:
        """This rank's samples of each group of batches that are drawn whole."""
        size = 1 if self.split_batches else self.num_processes
        whole = self.even_batches and keeps_batches(self.batch_sampler)
        options: Any = {"whole": self.drop_last, "unfilled": self._unfilled}
        if is_sent(self.batch_sampler, self.num_processes):
            options |= {"skip": skip, "after_skip": after_skip}
            groups = sent_groups(self.batch_sampler, self.process_index, size, **options)
        else:
            groups = _skipping(with_last(iter(self.batch_sampler), size, **options), skip, after_skip)
        for group, last in groups:
            short = len(group) < size or (last and len({len(b) for b in group}) > 1)
            yield divide(
                [list(b) for b in group],
                self.num_processes,
                self.process_index,
                last=last,
                split=self.split_batches,
                pool=short and not whole,
                even=self.even_batches,
                whole=whole,
            )

    def _own_parts(
        self, skip: int, after_skip: Callable[[], None] | None
    ) -> Iterator[tuple[list[Any], Shares]]:
        """The same of batches of torch's samplers: their places are known, so only this rank's indices are drawn."""
        size = 1 if self.split_batches else self.num_processes
        stream, samples = IndexStream(self.sampler), len(self.sampler)
        batches = samples // self.batch_size if self.drop_last else -(-samples // self.batch_size)
        samples = min(samples, batches * self.batch_size)
        groups = batches // size if self.drop_last else -(-batches // size)
        if batches and not groups:
            self._unfilled(batches)
        known: dict[tuple[int, int, bool], tuple[int, int, Shares]] = {}
        stream.go_past(min(samples, skip * size * self.batch_size))
        if skip and after_skip is not None:
            after_skip()
        for number in range(skip, groups):
            first = number * size
            count = min(size, batches - first)
            length = min(samples, (first + count) * self.batch_size) - first * self.batch_size
            what = (count, length, number + 1 == groups)
            if what not in known:
                start, own, shares = self._place(*what)
                left_out = batches - groups * size if self.drop_last and number + 1 == groups else 0
                known[what] = start, own, replace(shares, left_out=left_out)
            start, own, shares = known[what]
            stream.go_past(start)
            indices = stream.take(own)
            if not skip and number == 0 and after_skip is not None:
                after_skip()  # by the first index the order was drawn, which belongs to the beginning
            if number + 1 == groups and samples % self.batch_size:
                stream.finish()  # a loader that gets fewer than it asks for is at the end already
            yield indices, shares
            stream.go_past(length - start - own)
        stream.finish()

    def _place(self, batches: int, samples: int, last: bool) -> tuple[int, int, Shares]:
        """Where in a group this rank's samples begin, how many they are, and the shares of all."""
        ranks, rank = self.num_processes, self.process_index
        places = [range(at, min(at + self.batch_size, samples)) for at in range(0, samples, self.batch_size)]
        short = batches < (1 if self.split_batches else ranks) or (
            last and samples < batches * self.batch_size
        )
        own, shares = divide(
            places,
            ranks,
            rank,
            last=last,
            split=self.split_batches,
            pool=short,
            even=self.even_batches,
        )
        return own[0] if own else 0, len(own), shares


def _skipping(
    groups: Iterator[tuple[list[Any], bool]], skip: int, after_skip: Callable[[], None] | None
) -> Iterator[tuple[list[Any], bool]]:
    for number, group in enumerate(groups):
        if number < skip:
            continue
        if after_skip is not None:
            after_skip()
            after_skip = None
        yield group
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
        ranks, rank = self.num_processes, self.process_index
        size = 1 if self.split_batches else ranks
        if knows_its_order(self.sampler):
            yield from self._own(shares, size)
            return
        if is_sent(self.sampler, ranks):
            groups = sent_groups(self.sampler, rank, size)
        else:
            groups = with_last(iter(self.sampler), size)
        for group, last in groups:
            if size > 1:
                sizes = tuple(int(r < len(group)) for r in range(size))
                shares.append(Shares(sizes, len(group), last, whole=True))
                yield group[min(rank, len(group) - 1)]
            else:
                shares.append(Shares(CUT_LATER, 1, last))
                yield group[0]

    def _own(self, shares: deque[Shares], size: int) -> Iterator[Any]:
        """The indices of this rank alone, and those of the last turn, which all ranks cut."""
        stream = IndexStream(self.sampler)
        turns, rest = divmod(len(self.sampler), size) if size > 1 else (0, len(self.sampler))
        for turn in range(turns):
            stream.go_past(self.process_index)
            indices = stream.take(1)
            stream.go_past(size - 1 - self.process_index)
            shares.append(Shares((1,) * size, size, turn + 1 == turns and not rest, whole=True))
            yield from indices
        for number in range(rest):
            shares.append(Shares(CUT_LATER, 1, number + 1 == rest))
            yield from stream.take(1)
        stream.finish()
