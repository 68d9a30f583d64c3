"""A run that was stopped in the middle of an epoch and resumed gives the losses of one never stopped."""

import random

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

from accelify.runtime import DataLoaderConfiguration
from tests.distributed.processes import fresh_accelerator, run_ranks
from tests.runtime.training import Augmented, Noisy, OwnSampler, Stream, make_data

pytestmark = pytest.mark.distributed

EPOCHS = 3


class Progress:
    """Where the script's own loop stands."""

    def __init__(self):
        self.epoch = 0

    def state_dict(self):
        return {"epoch": self.epoch}

    def load_state_dict(self, state):
        self.epoch = state["epoch"]


def _loader(kind):
    data = make_data(21)
    if kind == "stream":
        return DataLoader(Stream(data), batch_size=4)
    if kind == "noisy":
        return DataLoader(Noisy(data), batch_size=4, shuffle=True)
    if kind in ("augmented", "persistent"):
        keep = kind == "persistent"
        return DataLoader(Augmented(data), batch_size=4, shuffle=True, num_workers=2, persistent_workers=keep)
    if kind == "augmented own":
        return DataLoader(Augmented(data), batch_size=4, sampler=OwnSampler(len(data)), num_workers=2)
    if kind == "augmented stream":
        return DataLoader(Stream(Augmented(data)), batch_size=4, num_workers=2)
    if kind == "own":
        return DataLoader(data, batch_size=4, sampler=OwnSampler(len(data)))
    if kind == "generator":
        return DataLoader(data, batch_size=4, shuffle=True, generator=torch.Generator().manual_seed(1))
    if kind == "in order":
        return DataLoader(data, batch_size=4)
    workers = 1 if kind == "workers" else 0
    return DataLoader(data, batch_size=4, shuffle=True, num_workers=workers)


def _run(kind, directory, stop_at, load, **kwargs):
    """Losses from the start or from the checkpoint, until the end or until a checkpoint is written."""
    torch.manual_seed(8 if not load else 99)
    random.seed(1 if not load else 7)
    dispatch = {"dispatch_batches": True} if kind == "dispatch" else {}
    accelerator = fresh_accelerator(
        dataloader_config=DataLoaderConfiguration(
            split_batches=True, use_seedable_sampler=kind == "seedable", **dispatch
        ),
        **kwargs,
    )
    model = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.2), nn.Linear(8, 3))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 30)
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, _loader(kind), scheduler)
    progress = Progress()
    accelerator.register_for_checkpointing(progress)
    if load:
        accelerator.load_state(directory)
    losses, step = [], 0
    for epoch in range(progress.epoch, EPOCHS):
        progress.epoch = epoch
        for x, y in loader:
            with accelerator.accumulate(model):
                loss = nn.functional.mse_loss(model(x.float() + 0.01 * random.random()), y)
                accelerator.backward(loss)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            losses.append((loss.item(), scheduler.get_last_lr()[0]))
            step += 1
            if step == stop_at:
                accelerator.save_state(directory)
        if kind == "generator":
            losses.append((torch.rand(()).item(), 0.0))
    return losses


def _resumed(cases, directory):
    found = []
    for i, (kind, stop_at, kwargs) in enumerate(cases):
        whole = _run(kind, f"{directory}/{i}", stop_at, False, **kwargs)
        rest = _run(kind, f"{directory}/{i}", None, True, **kwargs)
        found.append((whole, rest))
    return found


# 6 batches an epoch: in the middle of the first and the second, at the end of one, in the middle of a window.
CASES = [
    *(("shuffle", stop, {}) for stop in (1, 5, 6, 8)),
    *((kind, 8, {}) for kind in ("stream", "noisy", "own", "generator", "in order", "seedable")),
    *(("in order", stop, {}) for stop in (1, 3, 6)),
    ("shuffle", 9, {"gradient_accumulation_steps": 4}),
    ("shuffle", 8, {"mixed_precision": "fp16"}),
    ("workers", 8, {}),
    *((kind, stop, {}) for kind in ("augmented", "augmented own", "augmented stream") for stop in (5, 8)),
    ("persistent", 5, {}),
]


@pytest.mark.parametrize("ranks", [1, 2])
def test_resumed_run_repeats_the_losses(ranks, tmp_path):
    cases = CASES if ranks == 1 else [*CASES, ("dispatch", 8, {})]
    results = [_resumed(cases, tmp_path)] if ranks == 1 else run_ranks(ranks, _resumed, cases, str(tmp_path))
    for rank, result in enumerate(results):
        for case, (whole, rest) in zip(cases, result, strict=True):
            assert 0 < len(rest) < len(whole), (case, rank)
            assert rest == whole[-len(rest) :], (case, rank)


def test_workers_that_cannot_be_brought_back_are_told(tmp_path, capsys):
    whole = _run("persistent", tmp_path, 8, False)
    assert "persistent_workers" not in capsys.readouterr().out
    rest = _run("persistent", tmp_path, None, True)
    assert "a loader with persistent_workers=True goes on with new workers" in capsys.readouterr().out
    assert len(rest) == len(whole) - 8
    assert rest[0] != whole[8]
