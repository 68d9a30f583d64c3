"""Every kind of loader: each sample once, metrics exact, uneven ends, skipping."""

import collections
import warnings

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from accelify.runtime import DataLoaderConfiguration, GradientAccumulationPlugin, skip_first_batches
from tests.distributed.processes import fresh_accelerator, run_ranks
from tests.runtime.training import Setting, Stream, make_loader

pytestmark = pytest.mark.distributed

Pair = collections.namedtuple("Pair", "number name")


class Named(Dataset):
    """A number and a string for every sample, in a batch type of its own."""

    def __init__(self, size):
        self.size = size

    def __getitem__(self, i):
        return Pair(i, f"sample {i}")

    def __len__(self):
        return self.size


class NamedStream(IterableDataset):
    def __init__(self, size):
        self.size = size

    def __iter__(self):
        return (Pair(i, f"sample {i}") for i in torch.randperm(self.size).tolist())


class Batches(Dataset):
    """Every item is a batch."""

    def __init__(self, sizes):
        ends = torch.tensor(sizes).cumsum(0).tolist()
        self.items = [torch.arange(e - s, e) for s, e in zip(sizes, ends, strict=True)]

    def __getitem__(self, i):
        return {"number": self.items[i]}

    def __len__(self):
        return len(self.items)


LOADERS = {
    "map": lambda: DataLoader(Named(11), batch_size=2, shuffle=True),
    "map of one": lambda: DataLoader(Named(1), batch_size=4),
    "batch of one": lambda: DataLoader(Named(7), batch_size=1),
    "stream": lambda: DataLoader(NamedStream(11), batch_size=2),
    "short stream": lambda: DataLoader(NamedStream(1), batch_size=4),
    "workers": lambda: DataLoader(
        Named(11), batch_size=2, shuffle=True, num_workers=1, persistent_workers=True
    ),
}


def _numbers(kind, split, dispatch, epochs=2):
    torch.manual_seed(0)
    config = DataLoaderConfiguration(split_batches=split, dispatch_batches=dispatch)
    accelerator = fresh_accelerator(dataloader_config=config)
    loader = accelerator.prepare(LOADERS[kind]())
    found = []
    for _ in range(epochs):
        numbers, names, ends = [], [], []
        for batch in loader:
            assert isinstance(batch, Pair)
            numbers += accelerator.gather_for_metrics(batch.number).tolist()
            names += accelerator.gather_for_metrics(list(batch.name))
            ends.append(loader.end_of_dataloader)
        found.append((numbers, names, ends))
        # Random numbers that a step may draw must not change the next pass's agreement.
        torch.rand(accelerator.process_index + 1)
    return found


def _all_numbers(kinds):
    return {
        (kind, split, dispatch): _numbers(kind, split, dispatch)
        for kind in LOADERS
        for split in (False, True)
        for dispatch in (None, True)
        if (kind in kinds) and (kind != "workers" or (split and not dispatch))
    }


@pytest.mark.parametrize("ranks", [2, 3])
def test_metrics_are_exact_for_every_kind_of_loader(ranks):
    kinds = list(LOADERS) if ranks == 2 else ["map", "map of one", "short stream"]
    results = run_ranks(ranks, _all_numbers, kinds)
    for case, passes in results[0].items():
        kind = case[0]
        size = (
            1
            if "one" in kind and "batch" not in kind
            else 1
            if "short" in kind
            else 7
            if "batch" in kind
            else 11
        )
        for epoch, (numbers, names, ends) in enumerate(passes):
            assert sorted(numbers) == list(range(size)), case
            assert names == [f"sample {n}" for n in numbers], case
            assert ends == [False] * (len(ends) - 1) + [True], case
            assert all(r[case][epoch] == passes[epoch] for r in results), case
    torch.manual_seed(0)
    plain = [n for batch in LOADERS["map"]() for n in batch.number.tolist()]
    for split in (False, True):
        for dispatch in (None, True):
            assert results[0]["map", split, dispatch][0][0] == plain


def _squeezed(samples):
    accelerator = fresh_accelerator(split_batches=True)
    loader = accelerator.prepare(DataLoader(torch.arange(2 * samples).view(-1, 1, 2), batch_size=8))
    found = []
    for batch in loader:
        pairs = batch.squeeze()
        pairs, firsts, mean = accelerator.gather_for_metrics(
            (pairs, batch[:, :, :1].squeeze(), batch.float().mean())
        )
        found.append((pairs.tolist(), firsts.tolist(), tuple(mean.shape)))
    return found


def test_a_share_of_one_sample_that_lost_its_dimension_beside_longer_ones():
    # The last batch has three samples: two and one.
    for found in run_ranks(2, _squeezed, 11):
        assert [pair for pairs, _, _ in found for pair in pairs] == torch.arange(22).view(-1, 2).tolist()
        assert [one for _, firsts, _ in found for one in firsts] == list(range(0, 22, 2))
        assert [shape for _, _, shape in found] == [(2,)] * 2


def _rows_of_tokens(samples):
    accelerator = fresh_accelerator()
    loader = accelerator.prepare(DataLoader(torch.arange(3 * samples).view(-1, 3), batch_size=4))
    tokens, whole = [], []
    for batch in loader:
        flat, rows = accelerator.gather_for_metrics((batch.view(-1), batch))
        tokens += flat.tolist()
        whole += rows.view(-1).tolist()
    return tokens, whole


@pytest.mark.parametrize("samples", [9, 11, 17])
def test_a_rank_without_samples_adds_no_rows_of_tokens(samples):
    # In the last round one rank has a sample again that is another's.
    for tokens, whole in run_ranks(2, _rows_of_tokens, samples):
        assert sorted(tokens) == list(range(3 * samples))
        assert tokens == whole


def _gathers_in_a_row(sizes):
    accelerator = fresh_accelerator()
    rank = accelerator.process_index
    found = []
    for _ in range(3):
        for number, size in enumerate(sizes):
            value = torch.full((size,), float(rank + 10 * number))
            found.append(accelerator.gather(value).view(2, size)[:, 0].tolist())
        accelerator.wait_for_everyone()
        found.append(accelerator.reduce(torch.ones(3)).tolist())
    return found


def test_what_was_gathered_before_travels_in_the_message():
    # Small, large, larger than a message ever is, empty: once as something unknown, then as what came the last time.
    for found in run_ranks(2, _gathers_in_a_row, (3, 40_000, 1_000_000, 7, 40_000)):
        round_ = [[10.0 * n, 10.0 * n + 1] for n in range(5)] + [[2.0] * 3]
        assert found == round_ * 3


def _single_labels(samples):
    accelerator = fresh_accelerator()
    labels = DataLoader(torch.arange(samples).view(-1, 1), batch_size=4)
    return [
        [part.tolist() for part in accelerator.gather_for_metrics((batch, batch.squeeze()))]
        for batch in accelerator.prepare(labels)
    ]


def test_labels_of_the_one_sample_of_the_last_batch_that_lost_their_dimension():
    for found in run_ranks(2, _single_labels, 9):
        assert [label for _, labels in found for label in labels] == list(range(9))
        assert [one for rows, _ in found for (one,) in rows] == list(range(9))


def _tripled(samples):
    accelerator = fresh_accelerator()
    loader = accelerator.prepare(DataLoader(torch.arange(samples), batch_size=4))
    return [
        [part.tolist() for part in accelerator.gather_for_metrics((batch, batch.repeat_interleave(3)))]
        for batch in loader
    ]


@pytest.mark.parametrize("samples", [9, 11, 13])
def test_several_rows_of_each_sample_beside_one(samples):
    # In the last round the second rank has nothing of nine or eleven samples, and repeats one.
    for found in run_ranks(2, _tripled, samples):
        assert [one for rows, _ in found for one in rows] == list(range(samples))
        assert [one for _, tokens in found for one in tokens] == [n for n in range(samples) for _ in range(3)]


def _whole_batches(split):
    accelerator = fresh_accelerator(split_batches=split)
    loader = accelerator.prepare(DataLoader(Batches([4, 4, 2, 3, 1]), batch_size=None))
    seen = []
    for batch in loader:
        seen += (
            accelerator.gather_for_metrics(batch)["number"].tolist() if split else batch["number"].tolist()
        )
    return seen


def test_batches_made_by_the_dataset():
    assert run_ranks(2, _whole_batches, True) == [list(range(14))] * 2
    first, second = run_ranks(2, _whole_batches, False)
    # The last one has one sample, which one rank repeats with weight 0.
    assert sorted(first + second) == [*range(14), 13]


def _fewer_full_batches_than_ranks(kind, dispatch):
    data = Stream(list(range(5))) if kind == "stream" else range(5)
    accelerator = fresh_accelerator(dataloader_config=DataLoaderConfiguration(dispatch_batches=dispatch))
    loader = accelerator.prepare(DataLoader(data, batch_size=4, drop_last=True))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        seen = [batch for _ in range(2) for batch in loader]
    return seen, [str(w.message) for w in said if "drop_last" in str(w.message)]


@pytest.mark.parametrize(("kind", "dispatch"), [("map", None), ("stream", None), ("map", True)])
def test_a_loader_without_a_full_batch_for_each_rank_is_said_once(kind, dispatch):
    (seen, said), (others, quiet) = run_ranks(2, _fewer_full_batches_than_ranks, kind, dispatch)
    assert seen == others == quiet == []
    assert len(said) == 1
    assert "gives no batch at all, as it has 1 full batch for 2 processes" in said[0]


def _skip():
    accelerator = fresh_accelerator(split_batches=True)
    torch.manual_seed(5)
    whole = [
        x.tolist()
        for (x,) in accelerator.prepare(DataLoader(TensorDataset(torch.arange(11)), 2, shuffle=True))
    ]
    torch.manual_seed(5)
    loader = accelerator.prepare(DataLoader(TensorDataset(torch.arange(11)), 2, shuffle=True))
    rest = accelerator.skip_first_batches(loader, 2)
    ends = []
    part = []
    for (x,) in rest:
        part.append(x.tolist())
        ends.append(accelerator.gradient_state.end_of_dataloader)
    return whole, part, len(rest), ends


def test_skipped_batches_leave_the_rest_as_it_is():
    for whole, part, length, ends in run_ranks(2, _skip):
        assert part == whole[2:]
        assert length == len(part) == 4
        assert ends == [False, False, False, True]
    torch.manual_seed(5)
    loader = DataLoader(TensorDataset(torch.arange(11)), 2, shuffle=True)
    plain = [x.tolist() for (x,) in loader]
    torch.manual_seed(5)
    assert [x.tolist() for (x,) in skip_first_batches(loader, 2)] == plain[2:]


def _accumulated_gradients():
    """Gradients at every optimizer step: 5 batches by 2, a stream whose end is not known beforehand."""
    found = []
    for known in (True, False):
        data = TensorDataset(torch.ones(10, 1))
        loader = DataLoader(data if known else Stream(data), batch_size=2)
        accelerator = fresh_accelerator(split_batches=True, gradient_accumulation_steps=2)
        model = nn.Linear(1, 1, bias=False)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
        model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        gradients = []
        for (x,) in loader:
            with accelerator.accumulate(model):
                accelerator.backward(-model(x).mean())
                if accelerator.sync_gradients:
                    gradients.append(accelerator.unwrap_model(model).weight.grad.item())
                optimizer.step()
                optimizer.zero_grad()
        found.append(gradients)
    return found


@pytest.mark.parametrize("ranks", [1, 2])
def test_last_window_is_scaled_by_its_true_size(ranks):
    results = [_accumulated_gradients()] if ranks == 1 else run_ranks(ranks, _accumulated_gradients)
    assert results == [[[-1.0, -1.0, -1.0]] * 2] * ranks


def test_windows_as_a_loop_by_hand_counts_them():
    def run(**kwargs):
        plugin = GradientAccumulationPlugin(
            num_steps=2, sync_with_dataloader=False, scale_last_window=False, **kwargs
        )
        accelerator = fresh_accelerator(gradient_accumulation_plugin=plugin)
        loader = accelerator.prepare(make_loader(Setting(samples=6, batch=2)))
        syncs = []
        for _ in range(2):
            for _ in loader:
                with accelerator.accumulate():
                    syncs.append(accelerator.sync_gradients)
            assert accelerator.sync_gradients
        return syncs

    assert run() == [False, True, False, True, False, True]
    assert run(reset_each_epoch=True) == [False, True, False] * 2


def _tokens():
    """A loss over tokens: 3 batches by 2 windows, token counts that differ between batches and ranks."""
    accelerator = fresh_accelerator(split_batches=True, gradient_accumulation_steps=2)
    torch.manual_seed(0)
    model = nn.Linear(4, 1, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    lengths = torch.tensor([4, 1, 2, 3, 1, 4, 2, 2, 1])
    x = torch.randn(9, 4, generator=torch.Generator().manual_seed(1))
    loader = DataLoader(TensorDataset(x, lengths), batch_size=3)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    found = []
    for x, n in loader:
        with accelerator.accumulate(model):
            per_sample = model(x).flatten().square()
            accelerator.backward((per_sample * n).sum() / n.sum(), weight=n.sum())
            if accelerator.sync_gradients:
                found.append(accelerator.unwrap_model(model).weight.grad.clone())
            optimizer.step()
            optimizer.zero_grad()
    return found


def test_losses_weighed_by_tokens():
    torch.manual_seed(0)
    weight = nn.Linear(4, 1, bias=False).weight
    lengths = torch.tensor([4.0, 1, 2, 3, 1, 4, 2, 2, 1])
    x = torch.randn(9, 4, generator=torch.Generator().manual_seed(1))
    expected = []
    for part in (slice(0, 6), slice(6, 9)):
        losses = (x[part] @ weight.T).flatten().square() * lengths[part]
        expected.append(torch.autograd.grad(losses.sum() / lengths[part].sum(), weight)[0])
    for result in [_tokens(), *run_ranks(2, _tokens)]:
        for a, b in zip(result, expected, strict=True):
            torch.testing.assert_close(a, b)


class OwnWay(DataLoader):
    """Iterates past its batch sampler."""

    def __iter__(self):
        return iter([torch.ones(2)] * 3)


def _own_way():
    loader = OwnWay(TensorDataset(torch.arange(6)), batch_size=2)
    with pytest.raises(RuntimeError, match="OwnWay does not draw from its batch sampler"):
        list(fresh_accelerator().prepare(loader))
    accelerator = fresh_accelerator(dataloader_config=DataLoaderConfiguration(dispatch_batches=True))
    return [x.tolist() for x in accelerator.prepare(loader)]


def test_loaders_with_a_way_of_their_own():
    first, second = run_ranks(2, _own_way)
    assert sum(map(len, first + second)) == 6


class Endless(torch.utils.data.Sampler):
    """Goes on for ever, whatever length it tells."""

    def __init__(self, size, told):
        self.size, self.stated = size, told

    def __iter__(self):
        while True:
            yield from range(self.size)

    def __len__(self):
        return self.stated


def _first_of_endless(told):
    accelerator = fresh_accelerator()
    data = TensorDataset(torch.arange(8))
    loader = accelerator.prepare(DataLoader(data, batch_size=2, sampler=Endless(8, told)))
    batches = iter(loader)
    return [next(batches)[0].tolist() for _ in range(6)]


@pytest.mark.parametrize("told", [8, 2**31])
def test_a_sampler_that_never_ends(told):
    first, second = run_ranks(2, _first_of_endless, told)
    assert first == [[0, 1], [4, 5]] * 3
    assert second == [[2, 3], [6, 7]] * 3


class KnownLater(Endless):
    """Knows its length only once it has made its order."""

    def __iter__(self):
        self.order = [[0, 1], [2, 3], [4, 5], [6, 7]]
        return iter(self.order)

    def __len__(self):
        return len(self.order)


def _in_order_made_late():
    accelerator = fresh_accelerator()
    data = TensorDataset(torch.arange(8))
    loader = accelerator.prepare(DataLoader(data, batch_sampler=KnownLater(8, 0)))
    return [batch[0].tolist() for batch in loader]


def test_a_sampler_that_makes_its_length_with_its_order():
    assert run_ranks(2, _in_order_made_late) == [[[0, 1], [4, 5]], [[2, 3], [6, 7]]]


def _two_loaders(begin_anew):
    accelerator = fresh_accelerator()
    model = nn.Linear(1, 1, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    labelled = DataLoader(TensorDataset(torch.arange(60.0).view(60, 1)), batch_size=8)
    unlabelled = DataLoader(TensorDataset(torch.zeros(17, 1)), batch_size=8)
    model, optimizer, labelled, unlabelled = accelerator.prepare(model, optimizer, labelled, unlabelled)
    more = iter(unlabelled)
    gradients = []
    for number, (x,) in enumerate(labelled):
        if begin_anew == "counted" and number and number % len(unlabelled) == 0:
            more = iter(unlabelled)
        try:
            next(more)
        except StopIteration:
            more = iter(unlabelled)
            next(more)
        if begin_anew == "evaluated":
            # A loop within the loop is the one that its numbers belong to.
            for _ in unlabelled:
                assert accelerator.gradient_state.active_dataloader is unlabelled
        optimizer.zero_grad()
        accelerator.backward(model(x).mean())
        assert accelerator.gradient_state.active_dataloader is labelled
        gradients.append(model.weight.grad.item())
    return gradients


@pytest.mark.parametrize("begin_anew", ["run out", "counted", "evaluated"])
def test_a_loader_begun_anew_within_the_pass_of_another_leaves_the_loss_to_that(begin_anew):
    """Of both loaders the last round is short, and not the same one."""
    for gradients in run_ranks(2, _two_loaders, begin_anew):
        assert gradients == [7.5, 23.5, 39.5, 53.5]


def _a_step_each(drawn):
    """The gradients of two loaders' batches, each with a step of its own; the last rounds are short, not alike."""
    accelerator = fresh_accelerator()
    model = nn.Linear(1, 1, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    first = DataLoader(TensorDataset(torch.arange(19.0)), batch_size=4)
    second = DataLoader(TensorDataset(torch.arange(23.0)), batch_size=4)
    model, optimizer, first, second = accelerator.prepare(model, optimizer, first, second)
    gradients = []

    def step(x):
        optimizer.zero_grad()
        accelerator.backward(model(x.view(-1, 1)).mean())
        gradients.append(model.weight.grad.item())

    if drawn == "together":
        for (one,), (two,) in zip(first, second, strict=True):
            step(one)
            step(two)
    else:
        more = iter(second)
        for (one,) in first:
            (two,) = next(more) if drawn == "before" else (None,)
            step(one)
            step(two if drawn == "before" else next(more)[0])
    return gradients


@pytest.mark.parametrize("drawn", ["together", "before", "between"])
def test_of_two_loaders_in_turn_each_step_is_weighed_by_the_batch_of_its_own(drawn):
    for gradients in run_ranks(2, _a_step_each, drawn):
        assert gradients == pytest.approx([3.5, 3.5, 11.5, 11.5, 17.0, 19.0])


class Followed(torch.utils.data.Sampler):
    """Goes by how far the training has come."""

    def __init__(self):
        self.steps = 0

    def __iter__(self):
        return ((number, self.steps) for number in range(48))

    def __len__(self):
        return 48


class Steps(Dataset):
    """The index itself: a number, and how many steps there were when it was drawn."""

    def __len__(self):
        return 48

    def __getitem__(self, index):
        return torch.tensor(index)


def _ahead(workers, split):
    accelerator = fresh_accelerator(split_batches=split)
    sampler = Followed()
    loader = DataLoader(
        Steps(), batch_size=2, sampler=sampler, num_workers=workers,
        prefetch_factor=2 if workers else None, multiprocessing_context="fork" if workers else None,
    )  # fmt: skip
    seen = []
    for batch in accelerator.prepare(loader):
        seen.append(sampler.steps - int(batch[:, 1].min()))
        sampler.steps += 1
    return len(seen), max(seen)


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("workers", [0, 1])
def test_an_own_sampler_is_drawn_as_far_ahead_as_workers_fetch(workers, split):
    assert run_ranks(2, _ahead, workers, split) == [(24 if split else 12, 2 * workers)] * 2
