"""Models that a registry knows by name, and training states that are dictionaries of a model and its optimizer."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelify.convert import convert_paths

REGISTRY = """import torch

MODELS = {}


def register_model(cls=None, *, name=None):
    def _register(cls):
        MODELS[cls.__name__ if name is None else name] = cls
        return cls

    return _register if cls is None else _register(cls)


def create_model(config):
    return MODELS[config.name](config.width).to(config.device)
"""
NETS = """from torch import nn
from registry import register_model


@register_model{first}
class Small(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layer = nn.Linear(width, 1)

    def forward(self, x):
        return self.layer(x)


class Never(nn.Module):
    pass
"""
STEPS = """def get_step():
    def loss_of(net, batch):
        return net(batch).pow(2).mean()

    def step(state, batch):
        net, optimizer = state["model"], state["optimizer"]
        optimizer.zero_grad()
        loss = loss_of(net, batch)
        loss.backward()
        optimizer.step()
        return loss

    return step
"""
TRAIN = """import torch
from torch.utils.data import DataLoader
import nets
from registry import create_model
from steps import get_step


def train(config):
    model = create_model(config)
    optimizer = torch.optim.Adam(model.parameters())
    state = {state}
    loader = DataLoader(torch.randn(64, config.width), batch_size=8)
    step = get_step()
    for batch in loader:
        step(state, batch.to(config.device))
"""


@pytest.mark.parametrize("first", ["", "(name='small')"])
@pytest.mark.parametrize(
    "state", ["{'model': model, 'optimizer': optimizer}", "dict(model=model, optimizer=optimizer, step=0)"]
)
def test_what_a_decorator_registers_is_trained(tmp_path: Path, first: str, state: str) -> None:
    texts = {"registry": REGISTRY, "nets": NETS.format(first=first), "steps": STEPS}
    for name, text in {**texts, "train": TRAIN.format(state=state)}.items():
        (tmp_path / f"{name}.py").write_text(text)
    found = {c.source.path.name: c.new_text for c in convert_paths([tmp_path / "train.py"]) if c.source.path}
    script = found["train.py"]
    # The state is to hold what is prepared, whoever takes it out of there under whatever name.
    assert "    model, optimizer = accelerator.prepare(model, optimizer)\n    state = " in script
    assert "    loader = accelerator.prepare(loader)\n" in script
    assert "accelerator.backward(loss)" in found["steps.py"]
