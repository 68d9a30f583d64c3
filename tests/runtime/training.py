"""One small training loop, once in plain PyTorch and once with the Accelerator, over many settings."""

import random
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    Sampler,
    TensorDataset,
)

from tests.distributed.processes import fresh_accelerator


@dataclass(frozen=True)
class Setting:
    """What the loop does; the plain loop and the accelerated one read the same."""

    samples: int = 43
    batch: int = 16
    sampler: str = "shuffle"
    drop_last: bool = False
    loss: str = "mean"
    accumulate: int = 1
    clip: float | None = None
    schedule: str = "none"
    optimizer: str = "sgd"
    workers: int = 0
    epochs: int = 3


class OwnSampler(Sampler):
    """Draws from torch's global generator, in a way nothing knows of."""

    def __init__(self, size):
        self.size = size

    def __iter__(self):
        yield from torch.randperm(self.size).flip(0).tolist()

    def __len__(self):
        return self.size


class OwnBatches(Sampler):
    """Batches of changing size."""

    def __init__(self, size):
        self.size = size

    def __iter__(self):
        order = torch.randperm(self.size).tolist()
        start, step = 0, 3
        while start < self.size:
            yield order[start : start + step]
            start, step = start + step, step % 7 + 3

    def __len__(self):
        return sum(1 for _ in OwnBatches._sizes(self.size))

    @staticmethod
    def _sizes(size):
        start, step = 0, 3
        while start < size:
            yield step
            start, step = start + step, step % 7 + 3


class Stream(IterableDataset):
    def __init__(self, data):
        self.data = data

    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        for i in range(first, len(self.data), step):
            yield self.data[i]


class Noisy(Dataset):
    """Adds noise drawn from torch's global generator, as random augmentation does."""

    def __init__(self, data):
        self.data = data

    def __getitem__(self, i):
        x, y = self.data[i]
        return x + 0.1 * torch.randn_like(x), y

    def __len__(self):
        return len(self.data)


class Augmented(Dataset):
    """Draws from every generator that a transform in a worker may use, one of its own included."""

    def __init__(self, data):
        self.data = data
        self.own = None

    def __getitem__(self, i):
        if self.own is None:
            info = torch.utils.data.get_worker_info()
            self.own = np.random.default_rng(info.seed)
        x, y = self.data[i]
        x = x.roll(int(torch.randint(6, ()))) + random.random() * np.random.rand()
        return x * self.own.random(), y

    def __len__(self):
        return len(self.data)


def make_data(samples):
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(samples, 6, generator=generator)
    return TensorDataset(x, x @ torch.randn(6, 3, generator=generator) + 0.1)


def make_loader(setting, data=None):
    data = make_data(setting.samples) if data is None else data
    kwargs = {"num_workers": setting.workers}
    if setting.sampler == "stream":
        return DataLoader(Stream(data), batch_size=setting.batch, drop_last=setting.drop_last, **kwargs)
    if setting.sampler == "batches":
        return DataLoader(data, batch_sampler=OwnBatches(len(data)), **kwargs)
    if setting.sampler == "batch_sampler":
        return DataLoader(
            data, batch_sampler=BatchSampler(RandomSampler(data), setting.batch, False), **kwargs
        )
    kwargs |= {"batch_size": setting.batch, "drop_last": setting.drop_last}
    if setting.sampler == "own":
        return DataLoader(data, sampler=OwnSampler(len(data)), **kwargs)
    if setting.sampler == "generator":
        return DataLoader(data, shuffle=True, generator=torch.Generator().manual_seed(9), **kwargs)
    return DataLoader(data, shuffle=setting.sampler == "shuffle", **kwargs)


def make_model():
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3))


def make_optimizer(setting, model):
    if setting.optimizer == "adam":
        return torch.optim.Adam(model.parameters(), lr=0.01)
    return torch.optim.SGD(model.parameters(), lr=0.05 if setting.loss == "mean" else 0.002, momentum=0.9)


def make_scheduler(setting, optimizer):
    if setting.schedule == "epoch":
        return torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + 0.3 * step))


def loss_of(setting, output, target):
    return nn.functional.mse_loss(output, target, reduction="none").sum(1).__getattribute__(setting.loss)()


def train_plain(setting, device="cpu"):
    """(loss and learning rate of every batch, final weights) of the loop without the runtime."""
    torch.manual_seed(3)
    model = make_model().to(device)
    loader = make_loader(setting)
    optimizer = make_optimizer(setting, model)
    scheduler = make_scheduler(setting, optimizer)
    history = []
    for _ in range(setting.epochs):
        total = (
            sum(1 for _ in range(len(loader))) if hasattr(loader, "__len__") and setting.accumulate > 1 else 0
        )
        for i, (x, y) in enumerate(loader):
            x, y = x.to(device), y.to(device)
            loss = loss_of(setting, model(x), y)
            history.append((loss.item(), optimizer.param_groups[0]["lr"]))
            if setting.accumulate > 1:
                start = i - i % setting.accumulate
                loss = loss / min(setting.accumulate, total - start)
            loss.backward()
            if (i + 1) % setting.accumulate == 0 or i + 1 == total:
                if setting.clip is not None:
                    nn.utils.clip_grad_norm_(model.parameters(), setting.clip)
                optimizer.step()
                optimizer.zero_grad()
                if setting.schedule == "batch":
                    scheduler.step()
        if setting.schedule == "epoch":
            scheduler.step()
    return history, flat(model)


def train_accelerated(setting, **kwargs):
    """The same with the Accelerator; the loss is that of the whole batch."""
    torch.manual_seed(3)
    accelerator = fresh_accelerator(gradient_accumulation_steps=setting.accumulate, **kwargs)
    model = make_model()
    loader = make_loader(setting)
    optimizer = make_optimizer(setting, model)
    scheduler = make_scheduler(setting, optimizer)
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
    history = []
    for _ in range(setting.epochs):
        for x, y in loader:
            with accelerator.accumulate(model):
                loss = loss_of(setting, model(x), y)
                history.append((whole_loss(accelerator, loss, setting.loss), optimizer.param_groups[0]["lr"]))
                accelerator.backward(loss, reduction=setting.loss)
                if accelerator.sync_gradients and setting.clip is not None:
                    accelerator.clip_grad_norm_(model.parameters(), setting.clip)
                optimizer.step()
                optimizer.zero_grad()
                if setting.schedule == "batch":
                    scheduler.step()
        if setting.schedule == "epoch":
            scheduler.step()
    return history, torch.cat([v.reshape(-1) for v in accelerator.get_state_dict(model).values()])


def whole_loss(accelerator, loss, reduction):
    """Mean or sum over the whole batch, from the loader's own account of the shares."""
    factor = accelerator._share_weight(reduction)
    return accelerator.reduce(loss.item() * factor, "mean")


def flat(model):
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()])
