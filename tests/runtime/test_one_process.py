"""On one process nothing changes, to the bit."""

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

from accelify.runtime import Accelerator, PartialState
from tests.runtime.training import Noisy, Setting, make_data, make_loader, train_accelerated, train_plain


@pytest.mark.parametrize("split_batches", [False, True])
@pytest.mark.parametrize(
    "setting",
    [
        Setting(),
        Setting(loss="sum", schedule="epoch"),
        Setting(clip=0.1, schedule="batch", optimizer="adam"),
        Setting(accumulate=2, samples=75, schedule="none"),
        Setting(sampler="own"),
        Setting(sampler="batches"),
        Setting(sampler="stream"),
        Setting(sampler="generator"),
    ],
    ids=str,
)
def test_same_numbers(setting, split_batches):
    expected, weights = train_plain(setting)
    history, own = train_accelerated(setting, split_batches=split_batches)
    assert history == expected
    assert torch.equal(weights, own)


class Random(nn.Module):
    """Dropout and batch statistics."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 3)
        )

    def forward(self, x):
        return self.layers(x)


def _random_loop(workers, accelerator):
    torch.manual_seed(1)
    model = Random()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    data = Noisy(make_data(43))
    train = DataLoader(data, batch_size=8, shuffle=True, num_workers=workers)
    test = DataLoader(data, batch_size=8, num_workers=workers)
    if accelerator is not None:
        given = model
        model, optimizer, train, test = accelerator.prepare(model, optimizer, train, test)
        assert model is given
    numbers = []
    for epoch in range(2):
        for i, (x, y) in enumerate(train):
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), y)
            if accelerator is None:
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            else:
                accelerator.backward(loss)
                accelerator.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            numbers.append(loss.item())
            if epoch == 0 and i == 3:
                # A loop left early must not change what comes after it.
                break
        with torch.no_grad():
            numbers += [nn.functional.mse_loss(model(x), y).item() for x, y in test]
        numbers.append(torch.rand(()).item())
    return numbers, [t.clone() for t in model.state_dict().values()]


@pytest.mark.parametrize("workers", [0, 2])
def test_dropout_batch_norm_and_augmentation(workers):
    expected, weights = _random_loop(workers, None)
    numbers, own = _random_loop(workers, Accelerator(cpu=True))
    assert numbers == expected
    assert all(torch.equal(a, b) for a, b in zip(weights, own, strict=True))


def test_iterators_draw_when_the_original_does():
    def draws(loader):
        torch.manual_seed(0)
        iterator = iter(loader)
        numbers = [torch.rand(()).item()]
        numbers += next(iterator)[0].flatten().tolist()
        numbers.append(torch.rand(()).item())
        return numbers

    setting = Setting()
    expected = draws(make_loader(setting))
    assert draws(Accelerator(cpu=True).prepare(make_loader(setting))) == expected


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_own_autocast_regions_keep_their_numbers(precision):
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}[precision]

    def run(accelerator):
        torch.manual_seed(2)
        model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        loader = make_loader(Setting())
        scaler = torch.amp.GradScaler("cpu", enabled=precision == "fp16")
        if accelerator is not None:
            model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        losses = []
        for x, y in loader:
            optimizer.zero_grad()
            region = accelerator.autocast() if accelerator else torch.autocast("cpu", dtype=dtype)
            with region:
                loss = nn.functional.mse_loss(model(x), y)
            if accelerator is None:
                scaler.scale(loss).backward()
                scaler.unscale_(optimizer)
                nn.utils.clip_grad_norm_(model.parameters(), 0.1)
                scaler.step(optimizer)
                scaler.update()
            else:
                accelerator.backward(loss)
                accelerator.clip_grad_norm_(model.parameters(), 0.1)
                optimizer.step()
            losses.append(loss.item())
        return losses

    expected = run(None)
    assert run(Accelerator(cpu=True, mixed_precision=precision)) == expected


class Counting(torch.utils.data.Sampler):
    """A batch sampler whose length costs a random draw."""

    def __iter__(self):
        yield from ([i] for i in torch.randperm(4).tolist())

    def __len__(self):
        return sum(1 for _ in self)


def test_lengths_are_not_asked_for():
    def draws(loader):
        torch.manual_seed(0)
        return [x.tolist() for _ in range(2) for x, _ in loader], torch.rand(1)

    data = make_data(4)
    expected = draws(DataLoader(data, batch_sampler=Counting()))
    assert draws(Accelerator(cpu=True).prepare(DataLoader(data, batch_sampler=Counting()))) == expected


def test_end_of_loader_is_known_where_asked():
    accelerator = Accelerator(cpu=True)
    loader = accelerator.prepare(make_loader(Setting(samples=10, batch=4)))
    assert [accelerator.gradient_state.end_of_dataloader for _ in loader] == [False, False, True]
    assert not accelerator.gradient_state.in_dataloader


def test_a_loop_left_by_break_is_left():
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    outer, inner = accelerator.prepare(DataLoader(torch.arange(6), batch_size=2), DataLoader(torch.arange(4)))
    steps = []
    for _ in outer:
        for _ in inner:
            break
        with accelerator.accumulate():
            steps.append((accelerator.gradient_state.active_dataloader is outer, accelerator.sync_gradients))
    assert steps == [(True, False), (True, True), (True, True)]
    assert not accelerator.gradient_state.in_dataloader


@pytest.mark.parametrize(
    ("environment", "device", "set_to"),
    [
        ({}, "cuda", []),
        ({"WORLD_SIZE": "1", "RANK": "0", "LOCAL_RANK": "0"}, "cuda", []),
        ({"WORLD_SIZE": "1", "LOCAL_RANK": "1"}, "cuda:1", ["cuda:1"]),
    ],
)
def test_the_gpu_of_one_process_has_no_number(environment, device, set_to, monkeypatch):
    """As a script names it that has one device: it shows the same, and follows the device that the script has set."""
    chosen = []
    for name in ("WORLD_SIZE", "RANK", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: chosen.append(str(device)))
    PartialState._reset_state()
    try:
        assert str(PartialState().device) == device
        assert chosen == set_to
    finally:
        PartialState._reset_state()
