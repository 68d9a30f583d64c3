"""Losses, learning rates and weights of a loop on XLA devices are those of the loop in plain PyTorch, to rounding."""

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from accelify.runtime.backends.xla_plugin import XLAPlugin
from tests.runtime.training import Setting, flat, make_data, train_accelerated, train_plain
from tests.xla.devices import NEEDS_XLA, accelerator, compilations, on_devices, on_replicas

pytestmark = NEEDS_XLA

# Three epochs, shuffled; 43 samples in batches of 16 leave a last one of 11, which no number of devices divides.
SETTINGS = {
    "sgd": Setting(),
    "adam, sum": Setting(optimizer="adam", loss="sum", schedule="batch"),
    "own generator": Setting(sampler="generator", batch=8),
    "clipping, schedule": Setting(clip=0.05, schedule="epoch", drop_last=True),
    "accumulation": Setting(accumulate=2, clip=0.1, schedule="batch", batch=6),
    "stream": Setting(sampler="stream", batch=9),
    "batches of any size": Setting(sampler="batches"),
    "workers": Setting(workers=2),
}


def _train(setting, plugin=None):
    history, weights = train_accelerated(setting, cpu=False, xla_plugin=plugin)
    return history, weights.cpu(), compilations()


def _check(found, setting):
    history, weights = train_plain(setting)
    assert len(found[0]) == len(history)
    for (loss, rate), (plain_loss, plain_rate) in zip(found[0], history, strict=True):
        assert loss == pytest.approx(plain_loss, rel=2e-5)
        assert rate == pytest.approx(plain_rate)
    torch.testing.assert_close(found[1], weights, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", SETTINGS)
def test_one_device(name):
    _check(on_devices(1, _train, SETTINGS[name]), SETTINGS[name])


@pytest.mark.parametrize(
    ("name", "devices"),
    [("adam, sum", 2), ("adam, sum", 4), ("accumulation", 2), ("batches of any size", 4), ("workers", 4)],
)
def test_spmd(name, devices):
    _check(on_devices(devices, _train, SETTINGS[name]), SETTINGS[name])


@pytest.mark.parametrize("name", ["adam, sum", "accumulation"])
def test_spmd_with_weights_in_pieces(name):
    plugin = XLAPlugin(spmd=True, shard_weights=True, num_devices=4)
    _check(on_devices(4, _train, SETTINGS[name], plugin), SETTINGS[name])


@pytest.mark.parametrize("name", ["adam, sum", "accumulation"])
def test_replicas(name):
    """Two processes share every batch; their gradients meet at the end of a window."""
    for found in on_replicas(2, _train_split, SETTINGS[name]):
        _check(found, SETTINGS[name])


def _train_split(setting):
    history, weights = train_accelerated(setting, cpu=False, split_batches=True)
    return history, weights.cpu()


def _train_compiled():
    history, weights = train_accelerated(SETTINGS["adam, sum"], cpu=False, dynamo_backend="openxla")
    return history, weights.cpu()


def test_compiled_by_openxla():
    _check(on_devices(1, _train_compiled), SETTINGS["adam, sum"])


class Tied(nn.Module):
    """Input and output layer are one weight, as in language models."""

    def __init__(self):
        super().__init__()
        self.enter = nn.Embedding(12, 8)
        self.middle = nn.Linear(8, 8)
        self.leave = nn.Linear(8, 12, bias=False)
        self.leave.weight = self.enter.weight

    def forward(self, tokens):
        return self.leave(torch.tanh(self.middle(self.enter(tokens))))


def _tokens():
    generator = torch.Generator().manual_seed(4)
    tokens = torch.randint(12, (20, 5), generator=generator)
    return DataLoader(TensorDataset(tokens, tokens.roll(1, 1)), batch_size=8)


def _loss(model, tokens, targets):
    return nn.functional.cross_entropy(model(tokens).flatten(0, 1), targets.flatten())


def _train_tied_plainly():
    torch.manual_seed(2)
    model = Tied()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses = []
    for _ in range(3):
        for tokens, targets in _tokens():
            loss = _loss(model, tokens, targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses, model.state_dict()


def _train_tied(directory, hold_graph):
    torch.manual_seed(2)
    acc = accelerator()
    model = Tied()
    held = model(torch.zeros(1, 2, dtype=torch.long)) if hold_graph else None
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    model, optimizer, loader = acc.prepare(model, optimizer, _tokens())
    assert model.leave.weight is model.enter.weight
    assert sum(len(g["params"]) for g in optimizer.param_groups) == 3
    losses = []
    for _ in range(3):
        for tokens, targets in loader:
            loss = _loss(model, tokens, targets)
            optimizer.zero_grad()
            acc.backward(loss)
            optimizer.step()
            losses.append(loss.item())
    acc.save(acc.unwrap_model(model).state_dict(), directory / "model.pt")
    acc.save_model(model, directory)
    acc.save(model, directory / "whole.pt")
    acc.save(optimizer.state_dict(), directory / "optimizer.pt")
    del held
    return losses


@pytest.mark.parametrize(("devices", "hold_graph"), [(1, False), (1, True), (4, False)])
def test_tied_weights_and_files_for_plain_pytorch(devices, hold_graph, tmp_path):
    from safetensors.torch import load_file

    losses = on_devices(devices, _train_tied, tmp_path, hold_graph)
    expected, weights = _train_tied_plainly()
    assert losses == pytest.approx(expected, rel=2e-5)
    plain = Tied()
    plain.load_state_dict(torch.load(tmp_path / "model.pt", weights_only=True))
    for name, value in plain.state_dict().items():
        torch.testing.assert_close(value, weights[name], rtol=1e-4, atol=1e-6)
    # Written once, as it is one tensor.
    assert len({"enter.weight", "leave.weight"} & set(load_file(tmp_path / "model.safetensors"))) == 1
    whole = torch.load(tmp_path / "whole.pt", weights_only=False)
    assert whole.leave.weight is whole.enter.weight
    assert whole.enter.weight.device.type == "cpu"
    optimizer = torch.optim.AdamW(plain.parameters())
    optimizer.load_state_dict(torch.load(tmp_path / "optimizer.pt", weights_only=True))
    assert {t.device.type for s in optimizer.state.values() for t in s.values()} == {"cpu"}


def _train_in_bf16():
    torch.manual_seed(3)
    acc = accelerator(mixed_precision="bf16")
    data = make_data(64)
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    model, optimizer, loader = acc.prepare(model, optimizer, DataLoader(data, batch_size=16))
    losses, kinds = [], set()
    model[0].register_forward_hook(lambda module, inputs, output: kinds.add(str(output.dtype)))
    for _ in range(3):
        for x, y in loader:
            output = model(x)
            kinds.add(f"out {output.dtype}")
            loss = nn.functional.mse_loss(output, y)
            acc.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
    return losses, sorted(kinds), flat(model).cpu()


@pytest.mark.parametrize("devices", [1, 2])
def test_bf16_is_that_of_plain_autocast(devices):
    losses, kinds, weights = on_devices(devices, _train_in_bf16)
    assert kinds == ["out torch.float32", "torch.bfloat16"]
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    expected = []
    for _ in range(3):
        for x, y in DataLoader(make_data(64), batch_size=16):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                output = model(x)
            loss = nn.functional.mse_loss(output.float(), y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            expected.append(loss.item())
    assert losses == pytest.approx(expected, rel=0.02)
    torch.testing.assert_close(weights, flat(model), rtol=0.05, atol=5e-3)
