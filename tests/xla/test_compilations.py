"""Steps of the same shape are compiled once, however many there are."""

import warnings

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from accelify.runtime.backends.xla_plugin import XLAPlugin
from tests.runtime.training import make_data, make_model
from tests.xla.devices import NEEDS_XLA, accelerator, compilations, on_devices

pytestmark = NEEDS_XLA


def _epochs(samples=48, accumulate=1, clip=None, workers=0, total=False, plugin=None):
    """Compilations after each of five epochs of a loop with Adam and a schedule."""
    torch.manual_seed(3)
    acc = accelerator(gradient_accumulation_steps=accumulate, xla_plugin=plugin)
    model = make_model()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + 0.3 * step))
    loader = DataLoader(make_data(samples), batch_size=16, shuffle=True, num_workers=workers)
    model, optimizer, loader, scheduler = acc.prepare(model, optimizer, loader, scheduler)
    counts, summed = [], torch.zeros((), device=acc.device)
    for _ in range(5):
        for x, y in loader:
            with acc.accumulate(model):
                loss = nn.functional.mse_loss(model(x), y)
                acc.backward(loss)
                if clip is not None and acc.sync_gradients:
                    acc.clip_grad_norm_(model.parameters(), clip)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
                if total:
                    summed += loss.detach()
            if not total:
                # The step was cut off before: what is read is there already.
                loss.item()
        summed.item()
        counts.append(compilations())
    return counts


def _with(arguments):
    return _epochs(**arguments)


@pytest.mark.parametrize(
    ("arguments", "programs"),
    [
        # The first step, where Adam has nothing yet, and all others.
        ({}, 2),
        # And the last batch of 11.
        ({"samples": 43}, 3),
        # Three places in a window, of which two differ in the first window.
        ({"accumulate": 3, "clip": 0.1}, 5),
    ],
)
@pytest.mark.parametrize("devices", [1, 4])
def test_steps_of_one_shape_compile_once(devices, arguments, programs):
    counts = on_devices(devices, _with, arguments)
    assert counts[1:] == [programs] * 4


def test_a_sum_kept_on_the_device_costs_a_few_programs_once():
    counts = on_devices(1, _with, {"total": True})
    assert counts[1:] == [counts[1]] * 4
    assert counts[1] <= 5


@pytest.mark.parametrize("devices", [1, 4])
def test_batches_fed_ahead_compile_nothing_more(devices):
    assert on_devices(devices, _with, {"workers": 2})[1:] == [2] * 4


def test_padding_saves_the_program_of_the_last_batch():
    """Here the labels are class numbers, so that samples can be left out."""
    assert on_devices(1, _classes, False)[1:] == [3] * 2
    assert on_devices(1, _classes, True)[1:] == [2] * 2


def _classes(pad):
    torch.manual_seed(3)
    acc = accelerator(xla_plugin=XLAPlugin(pad_to_fixed_shape=pad, ignore_values={1: -100}))
    model = make_model()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    data = TensorDataset(torch.randn(43, 6), torch.randint(3, (43,)))
    model, optimizer, loader = acc.prepare(model, optimizer, DataLoader(data, batch_size=16))
    counts = []
    for _ in range(3):
        for x, y in loader:
            acc.backward(nn.functional.cross_entropy(model(x), y))
            optimizer.step()
            optimizer.zero_grad()
        counts.append(compilations())
    return counts


def _run(how):
    torch.manual_seed(3)
    acc = accelerator()
    data = TensorDataset(torch.zeros(9000, 2))
    model, loader = acc.prepare(nn.Linear(2, 2), DataLoader(data, **how))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for (x,) in loader:
            held = model(x).sum()
        assert held.item() != 0
    return [str(w.message) for w in told if "XLA compiled" in str(w.message)]


class _Growing:
    def __iter__(self):
        return (list(range(n + 1)) for n in range(210))


def test_ever_new_shapes_are_told_of():
    told = on_devices(1, _run, {"batch_sampler": _Growing()})
    assert len(told) == 1
    assert "XLA compiled 100 programs in the last 100 steps" in told[0]
    assert on_devices(1, _run, {"batch_size": 30}) == []
