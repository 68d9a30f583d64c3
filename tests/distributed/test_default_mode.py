"""Without split_batches each rank takes whole batches: every sample once, the learning rate as in the original."""

import collections
import random

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

from accelify.runtime import DataLoaderConfiguration, GradientAccumulationPlugin
from tests.distributed.processes import fresh_accelerator, run_ranks
from tests.runtime.training import Stream

pytestmark = pytest.mark.distributed


def _epochs(samples, batch, kind, drop_last, accumulate):
    """Samples seen on this rank, the learning rate after every step, and shares of every batch."""
    torch.manual_seed(0)
    data = TensorDataset(torch.arange(samples).float())
    source = Stream(data) if kind == "stream" else data
    loader = DataLoader(source, batch_size=batch, shuffle=kind == "map", drop_last=drop_last)
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: float(step))
    accelerator = fresh_accelerator(gradient_accumulation_steps=accumulate)
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
    seen, steps, gathered = [], [], []
    for _ in range(2):
        seen.append([])
        for (x,) in loader:
            with accelerator.accumulate(model):
                repeated = not accelerator._shares().sizes[accelerator.process_index]
                seen[-1] += [] if repeated else x.int().tolist()
                gathered.append(accelerator.gather_for_metrics(x).int().tolist())
                accelerator.backward(model(x[:, None]).mean() * 0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
                steps.append(scheduler.scheduler.last_epoch)
    return seen, steps, gathered, len(loader) if kind == "map" else len(steps) // 2


CASES = [
    (samples, batch, kind, drop_last, accumulate)
    for samples, batch in [(43, 4), (33, 4), (32, 4), (9, 4), (5, 8), (1, 4), (3, 1)]
    for kind in ["map", "stream"]
    for drop_last in [False, True]
    for accumulate in [1, 2]
    if not (drop_last and samples < 4 * batch)
]


def _all_cases():
    return [_epochs(*case) for case in CASES]


@pytest.mark.parametrize("ranks", [2, 3])
def test_every_sample_once_and_the_original_schedule(ranks):
    results = run_ranks(ranks, _all_cases)
    for i, (samples, batch, kind, drop_last, accumulate) in enumerate(CASES):
        case = CASES[i]
        batches = scheduled = samples // batch if drop_last else -(-samples // batch)
        if drop_last:
            batches -= batches % ranks
        if kind == "stream":
            scheduled = batches  # of a stream nobody knows how many are left out
        expected_samples = min(samples, batches * batch)
        for epoch in range(2):
            counts = collections.Counter(s for r in results for s in r[i][0][epoch])
            assert set(counts.values()) == {1}, case
            assert len(counts) == expected_samples, case
            length = -(-batches // ranks)
            gathered = results[0][i][2][epoch * length : (epoch + 1) * length]
            assert sorted(s for g in gathered for s in g) == sorted(counts), case
        for r in results:
            _, steps, gathered, length = r[i]
            assert length * 2 == len(steps), case
            per_epoch = -(-scheduled // accumulate)
            assert steps[length - 1] == per_epoch, (case, steps)
            assert steps[-1] == 2 * per_epoch, (case, steps)
            assert gathered == results[0][i][2], case


def _schedule_by_processes(split, steps):
    """The steps of a schedule after each of two passes over three batches, the last of them of one sample."""
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1.0, total_steps=steps)
    accelerator = fresh_accelerator(
        dataloader_config=DataLoaderConfiguration(split_batches=split),
        gradient_accumulation_plugin=GradientAccumulationPlugin(schedule_by_processes=True),
    )
    loader = DataLoader(TensorDataset(torch.randn(9, 1)), batch_size=4)
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
    reached = []
    for _ in range(2):
        for (x,) in loader:
            accelerator.backward(model(x).mean())
            optimizer.step()
            scheduler.step()
        reached.append(scheduler.scheduler.last_epoch)
    return reached


@pytest.mark.parametrize(
    ("split", "steps", "expected"), [(False, 100, [4, 8]), (False, 7, [4, 7]), (True, 100, [3, 6])]
)
def test_a_schedule_that_counts_processes_takes_no_account_of_what_the_last_step_lacks(
    split, steps, expected
):
    """As Accelerate counts: N steps with every step of N processes, to the end of the schedule."""
    assert run_ranks(2, _schedule_by_processes, split, steps) == [expected] * 2


class Episodes:
    """Two classes' shots, then their queries; of no use when cut."""

    def __init__(self, episodes):
        self.episodes = episodes

    def __len__(self):
        return self.episodes

    def __iter__(self):
        for _ in range(self.episodes):
            classes = torch.randperm(4)[:2]
            yield torch.stack([c * 10 + torch.randperm(10)[:3] for c in classes]).t().reshape(-1)


def _episodes(episodes):
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(40, 3), torch.arange(40))
    return nn.Linear(3, 2), DataLoader(data, batch_sampler=Episodes(episodes))


def _episode_loss(model, x):
    shots = model(x[:2])
    return nn.functional.cross_entropy(-torch.cdist(model(x[2:]), shots), torch.arange(2).repeat(2))


def _few_shot(episodes, dispatch):
    model, loader = _episodes(episodes)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    accelerator = fresh_accelerator(dataloader_config=DataLoaderConfiguration(dispatch_batches=dispatch))
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    losses = []
    for _ in range(2):
        for x, names in loader:
            loss = _episode_loss(model, x)
            losses.append(accelerator.gather_for_metrics(loss.detach()).tolist())
            assert accelerator.gather_for_metrics(names[2:]).shape == (4 * len(losses[-1]),)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
    return losses, model.weight.detach(), len(loader)


@pytest.mark.parametrize("dispatch", [None, True])
def test_batches_of_an_own_sampler_stay_whole_to_the_epochs_end(dispatch):
    """Three ranks train as one process that takes steps of three episodes, and of those that are left."""
    results = run_ranks(3, _few_shot, 5, dispatch)
    model, loader = _episodes(5)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    expected = []
    for _ in range(2):
        episodes = [x for x, _ in loader]
        for group in (episodes[:3], episodes[3:]):
            losses = [_episode_loss(model, x) for x in group]
            expected.append([loss.item() for loss in losses])
            optimizer.zero_grad()
            (sum(losses) / len(losses)).backward()
            optimizer.step()
    for losses, weight, length in results:
        assert length == 2
        assert losses == [pytest.approx(step, rel=1e-5) for step in expected]
        torch.testing.assert_close(weight, model.weight.detach(), rtol=1e-5, atol=1e-6)


def _orders(ranks_streams):
    torch.manual_seed(0)
    accelerator = fresh_accelerator(split_batches=True)
    loader = DataLoader(TensorDataset(torch.arange(8)), batch_size=4, shuffle=True)
    loader = accelerator.prepare(loader)
    order = []
    for (x,) in loader:
        order.append(accelerator.gather_for_metrics(x).tolist())
        noise = torch.rand(4)
    return order, noise, torch.rand(4)


def test_ranks_draw_noise_of_their_own_and_rank_0_the_scripts():
    (order, noise, behind), (other, other_noise, other_behind) = run_ranks(2, _orders, None)
    torch.manual_seed(0)
    loader = DataLoader(TensorDataset(torch.arange(8)), batch_size=4, shuffle=True)
    expected, drawn = zip(*[(x.tolist(), torch.rand(4)) for (x,) in loader], strict=True)
    assert order == other == list(expected)
    assert torch.equal(noise, drawn[-1])
    assert not torch.equal(noise, other_noise)
    # Behind the loop ranks decide alike.
    assert torch.equal(behind, torch.rand(4))
    assert torch.equal(behind, other_behind)


def _numpy_noise(ranks_streams):
    np.random.seed(3)
    accelerator = fresh_accelerator()
    loader = accelerator.prepare(DataLoader(TensorDataset(torch.arange(10)), batch_size=4, shuffle=True))
    noise, decisions = [], []
    for (x,) in loader:
        noise.append(accelerator.numpy_random.normal(0, 1, x.shape[0]).tolist())
        decisions.append(np.random.rand())
    return noise, decisions, accelerator.numpy_random.randint(0, 1000, 8).tolist(), np.random.rand()


def test_numpys_noise_is_the_ranks_own_and_decisions_are_shared():
    """Also behind a round in which the ranks drew other numbers of numbers: 10 samples end with shares of a batch."""
    results = run_ranks(2, _numpy_noise, None)
    (noise, decisions, late, behind), (other_noise, other_decisions, other_late, other_behind) = results
    np.random.seed(3)
    assert noise[0] == np.random.normal(0, 1, 4).tolist()
    assert decisions[0] == np.random.rand() == other_decisions[0]
    assert noise[0] != other_noise[0]
    assert late != other_late
    assert behind == other_behind


class Drawn(Dataset):
    """Samples that are nothing but what a worker drew for them."""

    def __getitem__(self, i):
        return torch.tensor([torch.rand(()), random.random(), np.random.rand()])

    def __len__(self):
        return 16


def _drawn_by_workers(_):
    torch.manual_seed(0)
    accelerator = fresh_accelerator()
    loader = accelerator.prepare(DataLoader(Drawn(), batch_size=4, shuffle=True, num_workers=2))
    return torch.cat(list(loader))


def _seed_worker(worker):
    torch.manual_seed(1234 + worker)
    random.seed(1234 + worker)
    np.random.seed(1234 + worker)


def _drawn_by_seeded_workers(_):
    torch.manual_seed(0)
    accelerator = fresh_accelerator()
    loader = DataLoader(Drawn(), batch_size=4, shuffle=True, num_workers=2, worker_init_fn=_seed_worker)
    return torch.cat(list(accelerator.prepare(loader)))


def test_workers_that_are_seeded_by_their_number_draw_for_themselves():
    first, second = run_ranks(2, _drawn_by_seeded_workers, None)
    assert not set(first.flatten().tolist()) & set(second.flatten().tolist())


def test_workers_of_every_rank_draw_for_themselves():
    first, second = run_ranks(2, _drawn_by_workers, None)
    assert not set(first.flatten().tolist()) & set(second.flatten().tolist())
    torch.manual_seed(0)
    batches = list(DataLoader(Drawn(), batch_size=4, shuffle=True, num_workers=2))
    assert torch.equal(first[:4], batches[0])
    assert torch.equal(first[4:], batches[1])
