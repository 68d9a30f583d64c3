"""A run on XLA devices goes on from its checkpoint as if never stopped, and other engines read it."""

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from accelify.runtime import Accelerator
from accelify.runtime.backends.xla_plugin import XLAPlugin
from tests.distributed.processes import fresh_accelerator
from tests.runtime.training import make_data
from tests.xla.devices import NEEDS_XLA, accelerator, on_devices

pytestmark = NEEDS_XLA


def _parts(acc, dropout, workers):
    model = nn.Sequential(nn.Linear(6, 16), nn.Dropout(dropout), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + 0.3 * step))
    loader = DataLoader(make_data(30), batch_size=4, shuffle=True, num_workers=workers)
    return acc.prepare(model, optimizer, loader, scheduler)


def _train(directory, resume, plugin=None, dropout=0.5, workers=0, save_at=5, steps=14):
    """Losses of the steps from `resume` on; saves after a batch in the middle of a window."""
    torch.manual_seed(9)
    acc = accelerator(gradient_accumulation_steps=2, xla_plugin=plugin)
    model, optimizer, loader, scheduler = _parts(acc, dropout, workers)
    losses, done = [], 0
    if resume:
        acc.load_state(directory)
        done = save_at
    while done < steps:
        for x, y in loader:
            with acc.accumulate(model):
                loss = nn.functional.mse_loss(model(x), y[:, :1])
                acc.backward(loss)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            losses.append(loss.item())
            done += 1
            if done == save_at and not resume:
                acc.save_state(directory)
            if done == steps:
                break
    return losses


@pytest.mark.parametrize(
    ("devices", "arguments"),
    [
        (1, {}),
        (1, {"workers": 2}),
        (4, {"plugin": XLAPlugin(spmd=True, shard_weights=True)}),
    ],
)
def test_going_on_in_the_middle_of_a_window(devices, arguments, tmp_path):
    """With dropout, so the device's own random numbers count."""
    whole = on_devices(devices, _with, tmp_path / "saved", False, arguments)
    rest = on_devices(devices, _with, tmp_path / "saved", True, arguments)
    assert rest == whole[5:]
    never_saved = on_devices(devices, _with, tmp_path / "unused", False, arguments | {"save_at": 0})
    assert never_saved == whole


def _with(directory, resume, arguments):
    return _train(directory, resume, **arguments)


def _plainly(directory, resume):
    torch.manual_seed(9)
    acc = fresh_accelerator(gradient_accumulation_steps=2)
    model, optimizer, loader, scheduler = _parts(acc, 0.0, 0)
    assert isinstance(acc, Accelerator)
    losses, done = [], 0
    if resume:
        acc.load_state(directory)
        done = 5
    while done < 14:
        for x, y in loader:
            with acc.accumulate(model):
                loss = nn.functional.mse_loss(model(x), y[:, :1])
                acc.backward(loss)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            losses.append(loss.item())
            done += 1
            if done == 5 and not resume:
                acc.save_state(directory)
            if done == 14:
                break
    return losses


def test_checkpoints_pass_between_engines(tmp_path):
    plain = _plainly(tmp_path / "plain", False)
    spmd = on_devices(2, _with, tmp_path / "xla", False, {"dropout": 0.0})
    assert spmd == pytest.approx(plain, rel=2e-5)
    assert on_devices(4, _with, tmp_path / "plain", True, {"dropout": 0.0}) == pytest.approx(
        plain[5:], rel=2e-5
    )
    assert _plainly(tmp_path / "xla", True) == pytest.approx(plain[5:], rel=2e-5)
    for name in ("optimizer.bin", "random_states_0.pkl"):
        state = torch.load(tmp_path / "xla" / name, weights_only=True)
        assert _devices(state) == {"cpu"}


def _devices(state):
    if isinstance(state, torch.Tensor):
        return {state.device.type}
    parts = state.values() if isinstance(state, dict) else state if isinstance(state, (list, tuple)) else ()
    return set().union(*(_devices(part) for part in parts))


def _dropout(seed_first):
    from accelify.runtime import set_seed

    acc = accelerator()
    if seed_first:
        set_seed(5)
    else:
        torch.manual_seed(5)
    model = acc.prepare(nn.Dropout(0.5))
    data = TensorDataset(torch.ones(4, 8))
    return [model(x).tolist() for (x,) in acc.prepare(DataLoader(data, batch_size=4))]


def test_the_scripts_seed_is_the_devices():
    first = on_devices(1, _dropout, True)
    assert on_devices(1, _dropout, True) == first
    assert on_devices(1, _dropout, False) == first
