"""Situations of public bug reports against training libraries, each with what is right in it."""

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, Sampler, TensorDataset

from accelify.runtime import FullyShardedDataParallelPlugin, PartialState, gather_object
from tests.distributed.processes import fresh_accelerator, run_ranks, try_ranks

pytestmark = pytest.mark.distributed


# accelerate #1708: a generator and a discriminator, with an `accumulate` for each, one in another


def _two_models(way):
    torch.manual_seed(0)
    a, b = nn.Linear(4, 4), nn.Linear(4, 1)
    one, other = torch.optim.SGD(a.parameters(), lr=0.1), torch.optim.SGD(b.parameters(), lr=0.1)
    data = torch.randn(32, 4, generator=torch.Generator().manual_seed(1))
    loader = DataLoader(TensorDataset(data), batch_size=4)
    if way == "plain":
        for i, (x,) in enumerate(loader):
            (b(a(x)).square().mean() / 2).backward()
            if i % 2:
                for optimizer in (one, other):
                    optimizer.step()
                    optimizer.zero_grad()
        return [p.detach().clone() for m in (a, b) for p in m.parameters()]
    accelerator = fresh_accelerator(split_batches=True, gradient_accumulation_steps=2)
    wrapped, judge, one, other, loader = accelerator.prepare(a, b, one, other, loader)
    for (x,) in loader:
        with accelerator.accumulate(wrapped), accelerator.accumulate(judge):
            accelerator.backward(judge(wrapped(x)).square().mean())
            for optimizer in (one, other):
                optimizer.step()
                optimizer.zero_grad()
    return [p.detach().clone() for m in (a, b) for p in m.parameters()]


def test_accumulate_in_accumulate():
    expected = _two_models("plain")
    for found in [*run_ranks(2, _two_models, "nested"), _two_models("nested")]:
        for weight, right in zip(found, expected, strict=True):
            torch.testing.assert_close(weight, right)


# accelerate #3547, #4075: loaders that give every rank its share by themselves


class _OfRank(Sampler):
    def __init__(self, size, rank, world_size):
        self.size, self.rank, self.world_size = size, rank, world_size

    def __iter__(self):
        return iter(range(self.rank, self.size, self.world_size))

    def __len__(self):
        return self.size // self.world_size


class _Divided:
    """What `datasets.distributed.split_dataset_by_node` leaves on a stream."""

    def __init__(self, rank, world_size):
        self.rank, self.world_size = rank, world_size


class _Stream(IterableDataset):
    def __init__(self, size, rank, world_size):
        self.size, self._distributed = size, _Divided(rank, world_size)

    def __iter__(self):
        return iter(range(self._distributed.rank, self.size, self._distributed.world_size))


class _Private(Sampler):
    """As detectron2's."""

    def __init__(self, size, rank, world_size):
        self._size, self._rank, self._world_size = size, rank, world_size

    def __iter__(self):
        return iter(range(self._rank, self._size, self._world_size))


class _Mapped(IterableDataset):
    """A stream of what another stream gives."""

    def __init__(self, dataset):
        self.dataset = dataset

    def __iter__(self):
        return iter(self.dataset)


def _seen(kind):
    accelerator = fresh_accelerator()
    rank, ranks = accelerator.process_index, accelerator.num_processes
    if kind == "sampler":
        loader = DataLoader(range(24), batch_size=4, sampler=_OfRank(24, rank, ranks))
    elif kind == "private":
        loader = DataLoader(range(24), batch_size=4, sampler=_Private(24, rank, ranks))
    else:
        stream = _Stream(24, rank, ranks)
        loader = DataLoader(_Mapped(stream) if kind == "mapped" else stream, batch_size=4)
    seen = [int(i) for batch in accelerator.prepare(loader) for i in batch]
    return sorted(gather_object(seen))


@pytest.mark.parametrize("kind", ["sampler", "private", "stream", "mapped"])
def test_loaders_that_are_sharded_already(kind):
    assert run_ranks(2, _seen, kind) == [list(range(24))] * 2


# transgenic #59: the script leaves out by hand what load_state has left out


def _interrupted(directory, phase):
    accelerator = fresh_accelerator()
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(TensorDataset(torch.arange(40.0).view(40, 1)), batch_size=2, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    if phase != "save":
        accelerator.load_state(f"{directory}/c")
    for step, (x,) in enumerate(loader):
        if phase == "by hand" and step < 4:
            continue
        accelerator.backward(model(x).mean())
        optimizer.step()
        if phase == "save" and step == 3:
            accelerator.save_state(f"{directory}/c")
            return None
    return step


@pytest.mark.parametrize("ranks", [1, 2])
def test_skipping_what_load_state_has_skipped(ranks, tmp_path):
    run_ranks(ranks, _interrupted, str(tmp_path), "save")
    assert run_ranks(ranks, _interrupted, str(tmp_path), "neither") == [20 // ranks - 5] * ranks
    for outcome in try_ranks(ranks, _interrupted, str(tmp_path), "by hand"):
        assert "load_state has gone on with batch 4 of the epoch already" in outcome.error


# accelerate #3393: a part of a data set of the datasets library is one


class _Table:
    """What is needed of `datasets.Dataset`: slicing it gives its columns."""

    column_names = ("x",)

    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, key):
        return {"x": self.rows[key]}

    def __iter__(self):
        return iter({"x": row} for row in self.rows)

    def select(self, indices):
        return _Table([self.rows[i] for i in indices])


def _parts():
    fresh_accelerator()
    found = []
    for size, pad in ((1, False), (3, False), (3, True)):
        with PartialState().split_between_processes(_Table(list(range(size))), apply_padding=pad) as part:
            found.append([row["x"] for row in part])
    return found


def test_parts_of_a_table():
    assert run_ranks(2, _parts) == [[[0], [0, 1], [0, 1]], [[], [2], [2, 2]]]


# accelerate #2392, #2285: batches that the data set makes, of different sizes


class _Made(Dataset):
    """Batches of the numbers from 0 on, of given sizes."""

    def __init__(self, sizes):
        self.batches = list(torch.arange(float(sum(sizes))).split(sizes))

    def __len__(self):
        return len(self.batches)

    def __getitem__(self, index):
        return self.batches[index]


class _MadeStream(IterableDataset):
    def __init__(self, sizes):
        self.made = _Made(sizes)

    def __iter__(self):
        return iter(self.made.batches)


def _weighed(kind, sizes, workers):
    accelerator = fresh_accelerator()
    model = nn.Linear(1, 1)
    model, loader = accelerator.prepare(model, DataLoader(kind(sizes), batch_size=None, num_workers=workers))
    gradients, gathered = [], []
    for x in loader:
        accelerator.backward(model(x.view(-1, 1)).mean())
        gradients.append(accelerator.unwrap_model(model).weight.grad.item())
        model.zero_grad()
        gathered.append(sorted(accelerator.gather_for_metrics(x).tolist()))
    return gradients, gathered


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("kind", [_Made, _MadeStream])
def test_batches_that_the_data_set_makes_count_by_their_samples(kind, workers):
    # The gradient is the mean of the numbers: of 0..5, of 6..10, and of 11..13, the last batch, which both share.
    for gradients, gathered in run_ranks(2, _weighed, kind, [4, 2, 2, 3, 3], workers):
        assert gradients == pytest.approx([2.5, 8.0, 12.0])
        assert gathered == [[0, 1, 2, 3, 4, 5], [6, 7, 8, 9, 10], [11, 12, 13]]


# accelerate #3822: blocks that are computed again, and a setting that allows for none


def _wrap_nothing():
    plugin = FullyShardedDataParallelPlugin(auto_wrap_policy="NO_WRAP", activation_checkpointing=True)
    fresh_accelerator(fsdp_plugin=plugin).prepare(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)))


def test_checkpointing_without_blocks_names_the_setting():
    for outcome in try_ranks(2, _wrap_nothing):
        assert "auto_wrap_policy NO_WRAP says that there are none" in outcome.error


def _log_images(directory):
    accelerator = fresh_accelerator(log_with="tensorboard", project_dir=directory)
    accelerator.init_trackers("run")
    tracker = accelerator.get_tracker("tensorboard")
    tracker.log_images({"noise": torch.zeros(2, 3, 4, 4)}, step=1)
    accelerator.end_training()


def test_images_of_every_rank_are_recorded_once(tmp_path):
    pytest.importorskip("PIL")
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    run_ranks(2, _log_images, str(tmp_path))
    events = accumulator.EventAccumulator(str(tmp_path / "run"))
    events.Reload()
    assert [image.step for image in events.Images("noise")] == [1]
