"""Models on several ranks whose attributes have names of torch's methods, and the text by which they are shown."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from tests.distributed.processes import fresh_accelerator, run_ranks

pytestmark = pytest.mark.distributed


class Hiding(nn.Module):
    """Keeps lists under names of methods by which torch walks over a module."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))
        setattr(self, name, list(self.body.parameters()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x)


def trained(name: str, accelerator: Any = None) -> list[float]:
    torch.manual_seed(3)
    model, x = Hiding(name), torch.randn(8, 4)
    listed = getattr(model, name)
    optimizer = torch.optim.SGD(listed, lr=0.1)
    prepared = model
    if accelerator is not None:
        prepared, optimizer = accelerator.prepare(model, optimizer)
        x = x[accelerator.process_index :: accelerator.num_processes]
    for _ in range(3):
        optimizer.zero_grad()
        loss = prepared(x).square().mean()
        loss.backward() if accelerator is None else accelerator.backward(loss)
        optimizer.step()
    assert getattr(model, name) is listed
    return [float(p.detach().sum()) for p in listed]


def hidden() -> None:
    for name in ("parameters", "modules", "named_buffers"):
        torch.testing.assert_close(trained(name, fresh_accelerator()), trained(name))


def shown() -> None:
    accelerator = fresh_accelerator()
    model = nn.Sequential(nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    texts = f"{model}", str(optimizer)
    prepared = accelerator.prepare(model, optimizer, scheduler)
    assert (f"{prepared[0]}", str(prepared[1])) == texts
    assert "StepLR" in repr(prepared[2])
    assert "Accelerated" not in repr(prepared[2])


def named_parts() -> None:
    model = nn.Sequential(nn.Linear(4, 2), nn.BatchNorm1d(2))
    wrapped = fresh_accelerator().prepare(model)
    assert wrapped.get_submodule("1") is model[1]
    assert wrapped.get_submodule("") is model
    assert wrapped.get_parameter("0.weight") is model[0].weight
    assert wrapped.get_buffer("1.running_mean") is model[1].running_mean


@pytest.mark.parametrize("checks", [hidden, shown, named_parts])
def test_on_two_ranks(checks: Any) -> None:
    run_ranks(2, checks)


def test_on_one_process() -> None:
    for name in ("parameters", "modules"):
        assert trained(name, fresh_accelerator()) == trained(name)
