"""Shares put together are the original's batches, whatever their sizes."""

import pickle
import random
import warnings
from unittest.mock import patch

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import (
    BatchSampler,
    ConcatDataset,
    RandomSampler,
    SequentialSampler,
    StackDataset,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
    default_collate,
)

from accelify.runtime import BatchSamplerShard, IterableDatasetShard, SeedableRandomSampler, SkipBatchSampler
from accelify.runtime.data.index_streams import IndexStream, sent_groups
from accelify.runtime.data.sharding import WholeBatchShard, share_sizes
from accelify.runtime.data.workers import ReadingApart, may_draw


@given(st.integers(0, 100), st.integers(1, 9))
def test_shares_are_even(samples, ranks):
    sizes = share_sizes(samples, ranks)
    assert sum(sizes) == samples
    assert max(sizes) - min(sizes) <= 1
    assert list(sizes) == sorted(sizes, reverse=True)


class OwnSampler(SequentialSampler):
    """Of the script: nobody knows whether its batches belong together."""


def _batches(samples, batch, drop_last, sampler=SequentialSampler):
    return BatchSampler(sampler(range(samples)), batch, drop_last)


SAMPLERS = st.sampled_from([SequentialSampler, OwnSampler])


@pytest.mark.filterwarnings("ignore:a prepared loader with drop_last")
@given(
    st.integers(1, 50),
    st.integers(1, 9),
    st.integers(1, 5),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    SAMPLERS,
)
def test_every_sample_once(samples, batch, ranks, split, drop_last, even, sampler):
    original = list(_batches(samples, batch, drop_last))
    shards = [
        BatchSamplerShard(_batches(samples, batch, drop_last, sampler), ranks, r, split, even)
        for r in range(ranks)
    ]
    # All ranks are this process here, whatever group another test may have left: nobody sends an order to the others.
    with patch("torch.distributed.is_initialized", return_value=False):
        drawn = [list(s) for s in shards]
    assert [len(s) for s in shards] == [len(d) for d in drawn] or (split and not even)
    if even:
        assert len({len(d) for d in drawn}) <= 1
    found = []
    steps = max(map(len, drawn))
    for step in range(steps):
        weights = 0.0
        for rank, own in enumerate(drawn):
            if step >= len(own):
                continue
            shares = shards[rank].shares[step]
            assert shares.last == (step == steps - 1)
            found += own[step] if shares.sizes[rank] else []
            weights += shares.weight(rank)
            if sampler is OwnSampler and not split:
                assert own[step] in original
        assert weights == pytest.approx(ranks)
    whole = [i for b in original for i in b]
    if drop_last and not split:
        whole = whole[: len(original) // ranks * ranks * batch]
    assert found == whole
    if even and not split and not drop_last:
        assert sum(s.batches for s in shards[0].shares) == len(original)


@pytest.mark.filterwarnings("ignore:a prepared loader with drop_last")
@given(st.integers(1, 40), st.integers(1, 7), st.integers(1, 4), st.booleans(), st.booleans())
def test_iterable_samples_once(samples, batch, ranks, split, drop_last):
    shards = [
        IterableDatasetShard(range(samples), batch, drop_last, ranks, r, split, as_batches=True)
        for r in range(ranks)
    ]
    drawn = [list(s) for s in shards]
    assert len({len(d) for d in drawn}) == 1
    found = [
        i for step in zip(*drawn, strict=True) for r, (own, s) in enumerate(step) for i in own if s.sizes[r]
    ]
    kept = (
        samples
        if not drop_last
        else samples // batch * batch
        if split
        else samples // batch // ranks * ranks * batch
    )
    assert found == list(range(kept))


@pytest.mark.parametrize(
    "shard",
    [
        BatchSamplerShard(_batches(29, 8, True), 4),
        IterableDatasetShard(range(29), 8, True, 4, as_batches=True),
    ],
)
def test_fewer_full_batches_than_ranks_are_said_once(shard):
    with pytest.warns(UserWarning, match="no batch at all, as it has 3 full batches for 4 processes") as said:
        assert list(shard) == list(shard) == []
    assert len(said) == 1


@pytest.mark.parametrize(
    ("samples", "drop_last", "split"),
    [(7, True, False), (35, True, False), (29, False, False), (29, True, True)],
)
def test_nothing_is_said_of_other_loaders(samples, drop_last, split):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        list(BatchSamplerShard(_batches(samples, 8, drop_last), 4, 0, split))
        list(IterableDatasetShard(range(samples), 8, drop_last, 4, 0, split))


def test_batches_of_an_own_sampler_stay_whole_to_the_end():
    batches = [[0, 1, 2], [3, 4], [5, 6, 7], [8, 9], [10]]
    shards = [BatchSamplerShard(batches, 3, r) for r in range(3)]
    with patch("torch.distributed.is_initialized", return_value=False):
        drawn = [list(s) for s in shards]
    assert drawn == [[[0, 1, 2], [8, 9]], [[3, 4], [10]], [[5, 6, 7], [10]]]
    assert [len(s) for s in shards] == [2, 2, 2]
    shares = shards[2].shares[1]
    assert (shares.sizes, shares.batches, shares.last) == ((2, 1, 0), 2, True)
    assert shares.weight(2) == 0


def test_whole_indices_of_an_own_sampler_stay_whole_to_the_end():
    shards = [WholeBatchShard(["a", "b", "c", "d"], 3, r) for r in range(3)]
    with patch("torch.distributed.is_initialized", return_value=False):
        drawn = [list(s) for s in shards]
    assert drawn == [["a", "d"], ["b", "d"], ["c", "d"]]
    assert [len(s) for s in shards] == [2, 2, 2]
    assert [s.sizes for s in shards[0].shares] == [(1, 1, 1), (1, 0, 0)]


@pytest.mark.parametrize("cut", [iter, lambda order: iter(order.split(4)), lambda order: iter([list(order)])])
def test_indices_that_are_views_are_shared_without_what_lies_behind_them(cut):
    """Of n indices taken from one tensor, pickle would write the whole tensor n times."""
    order, sent = torch.randperm(1000), []
    with (
        patch("torch.distributed.is_initialized", return_value=True),
        patch(
            "accelify.runtime.collectives.broadcast_object", lambda batches: sent.append(batches) or batches
        ),
    ):
        got = [batch for group, _ in sent_groups(cut(order), 0, 2) for batch in group]
    assert torch.equal(
        torch.stack([i for b in got for i in (b if type(b) is list or b.dim() else [b])]), order
    )
    assert len(pickle.dumps(sent)) < 1000 * 1000


def test_seedable_order_depends_on_seed_and_epoch_alone():
    sampler = SeedableRandomSampler(range(20), data_seed=4)
    state = torch.get_rng_state()
    first, second = list(sampler), list(sampler)
    assert torch.equal(state, torch.get_rng_state())
    assert first != second
    sampler.set_epoch(0)
    torch.rand(3)
    assert list(sampler) == first


def test_skipping_leaves_the_order():
    torch.manual_seed(0)
    whole = list(BatchSampler(RandomSampler(range(10)), 3, False))
    torch.manual_seed(0)
    rest = SkipBatchSampler(BatchSampler(RandomSampler(range(10)), 3, False), 2)
    assert list(rest) == whole[2:]
    assert len(rest) == 2


def _seeded():
    return torch.Generator().manual_seed(3)


TORCHS = {
    "in order": lambda: SequentialSampler(range(100)),
    "shuffled": lambda: RandomSampler(range(100)),
    "by its own generator": lambda: RandomSampler(range(100), generator=_seeded()),
    "repeated": lambda: RandomSampler(range(40), num_samples=100),
    "with replacement": lambda: RandomSampler(range(40), True, 100, generator=_seeded()),
    "of a part": lambda: SubsetRandomSampler(range(200, 300)),
    "weighted": lambda: WeightedRandomSampler([1.0, 2.0, 3.0], 100),
    "by a seed": lambda: SeedableRandomSampler(range(100), data_seed=5),
}


@pytest.mark.parametrize("kind", TORCHS)
@given(steps=st.lists(st.tuples(st.booleans(), st.integers(0, 30)), max_size=12))
def test_indices_gone_past_are_those_of_the_sampler(kind, steps):
    torch.manual_seed(1)
    whole = list(TORCHS[kind]())
    torch.manual_seed(1)
    stream, at = IndexStream(TORCHS[kind]()), 0
    for takes, count in steps:
        if takes:
            assert stream.take(count) == whole[at : at + count]
        else:
            stream.go_past(count)
        at += count


@pytest.mark.parametrize("ranks", [2, 1000])
@pytest.mark.parametrize("kind", ["in order", "shuffled", "weighted", "of a part"])
def test_what_is_for_other_ranks_is_not_drawn(kind, ranks):
    """A step costs the rank its own indices, however many ranks there are."""
    samples = 4 * 8 * ranks
    sampler = {
        "in order": lambda: SequentialSampler(range(samples)),
        "shuffled": lambda: RandomSampler(range(samples)),
        "weighted": lambda: WeightedRandomSampler([1.0] * 50, samples),
        "of a part": lambda: SubsetRandomSampler(range(samples)),
    }[kind]()
    drawn, take = [], IndexStream.take
    with patch.object(IndexStream, "take", lambda self, n: drawn.append(n) or take(self, n)):
        batches = list(BatchSamplerShard(BatchSampler(sampler, 8, False), ranks, ranks - 1))
    assert [len(b) for b in batches] == [8] * 4
    # One more may begin the order, and two may look for its end.
    assert sum(drawn) <= 4 * 8 + 3


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("samples", [48, 43])
def test_the_next_pass_goes_on_in_the_scripts_generator(samples, drop_last, split):
    def loader(ranks, rank):
        sampler = RandomSampler(range(samples), generator=_seeded())
        batches = BatchSampler(sampler, 8, drop_last)
        return batches if ranks == 1 else BatchSamplerShard(batches, ranks, rank, split)

    plain = loader(1, 0)
    shards = [loader(2, rank) for rank in range(2)]
    for _ in range(3):
        wanted = [index for batch in plain for index in batch]
        parts = [[index for batch in shard for index in batch] for shard in shards]
        # The last batch may be filled up with samples of the same pass.
        assert set(parts[0] + parts[1]) <= set(wanted)
        assert parts[0][:4] == wanted[:4]


class Adaptive(OwnSampler):
    """Goes by what the training has told it."""

    def __init__(self, told, length):
        self.stated, self.length = told, length

    def __iter__(self):
        for number in range(self.length):
            yield (number, self.stated[-1])

    def __len__(self):
        return self.length


@pytest.mark.parametrize("split", [False, True])
def test_an_own_sampler_is_drawn_when_the_loader_asks(split):
    told, seen = [0], []
    sampler = BatchSampler(Adaptive(told, 12), 2, False)
    with (
        patch("torch.distributed.is_initialized", return_value=True),
        patch("accelify.runtime.collectives.broadcast_object", lambda group: group),
    ):
        shard = BatchSamplerShard(sampler, 2, 0, split)
        for batch in shard:
            seen.append((batch, shard.shares.popleft().last))
            told.append(told[-1] + 1)
    if split:
        assert seen == [([(2 * i, i)], i == 5) for i in range(6)]
    else:
        assert seen == [([(4 * i, i), (4 * i + 1, i)], i == 2) for i in range(3)]


class Augmented(TensorDataset):
    """Of the script: draws."""

    def __getitem__(self, i):
        return (super().__getitem__(i)[0] * random.random(),)


def _collated(samples):
    return torch.stack(samples)


@pytest.mark.parametrize(
    ("make", "collate_fn", "draws"),
    [
        (lambda x: TensorDataset(x), default_collate, False),
        (lambda x: TensorDataset(x), _collated, True),
        (lambda x: Augmented(x), default_collate, True),
        (lambda x: ConcatDataset([TensorDataset(x), TensorDataset(x)]), default_collate, False),
        (lambda x: ConcatDataset([TensorDataset(x), Augmented(x)]), default_collate, True),
        (lambda x: Subset(TensorDataset(x), [1, 0]), default_collate, False),
        (lambda x: Subset(Augmented(x), [1, 0]), default_collate, True),
        (lambda x: StackDataset(one=TensorDataset(x), two=Augmented(x)), default_collate, True),
        (lambda x: StackDataset(TensorDataset(x), TensorDataset(x)), default_collate, False),
    ],
)
def test_only_torchs_reading_is_known_to_draw_nothing(make, collate_fn, draws):
    assert may_draw(make(torch.zeros(4, 2)), collate_fn) == draws


class _Fetcher:
    def fetch(self, indices):
        return [(random.random(), float(np.random.rand()), float(np.random.randn())) for _ in indices]


@pytest.mark.parametrize("normals", [0, 1])
def test_reading_apart_leaves_the_scripts_streams_where_they_are(normals):
    """The second number of a pair of normal ones waits outside of NumPy's generator."""

    def drawn(batches):
        random.seed(5)
        np.random.seed(5)
        np.random.randn(normals)
        read = [ReadingApart(_Fetcher(), 7, 1, done).fetch([0, 1]) for done in batches]
        return read, random.random(), np.random.randn(3).tolist(), np.random.rand()

    alone, read = drawn([]), drawn([0, 1])
    assert read[1:] == alone[1:]
    assert read[0] == drawn([0, 1])[0]
    assert read[0][0] != read[0][1]
