"""Modules inside of a loss with weights: parts of the model that keeps the loss, models of their own elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelify.conversion import Conversion
from accelify.convert import convert_paths

LOSSES = """\
from torch import nn


class CriticLoss(nn.Module):
    def __init__(self):
        super().__init__()
        self.critic = nn.Linear(3, 1)

    def forward(self, x):
        return self.critic(x).mean()


class BothLoss(nn.Module):
    def __init__(self):
        super().__init__()
        self.one = CriticLoss()

    def forward(self, x):
        return self.one(x)
"""
NETS = """\
from torch import nn
from losses import BothLoss, CriticLoss


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.base = nn.Linear(4, 3)
        self.adapt = {loss}()

    def forward(self, x):
        x = self.base(x)
        return x.mean() + self.adapt(x)

    def groups(self):
        return [{{"params": self.base.parameters()}}, {{"params": self.adapt.{inner}.parameters()}}]
"""
TRAIN = """\
import torch
from torch.utils.data import DataLoader, TensorDataset
from nets import Net

loader = DataLoader(TensorDataset(torch.randn(32, 4)), batch_size=8)
model = Net()
optimizer = torch.optim.SGD(model.groups(), lr=0.1)
for (x,) in loader:
    loss = model(x)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def converted(folder: Path, **modules: str) -> Conversion:
    for name, text in modules.items():
        (folder / f"{name}.py").write_text(text)
    return convert_paths([folder / "train.py"])[0]


@pytest.mark.parametrize(("loss", "inner"), [("CriticLoss", "critic"), ("BothLoss", "one.critic")])
def test_what_a_loss_of_the_model_keeps_is_the_models(tmp_path: Path, loss: str, inner: str) -> None:
    found = converted(tmp_path, losses=LOSSES, nets=NETS.format(loss=loss, inner=inner), train=TRAIN)
    assert "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)" in found.new_text
    assert found.remaining == []


def test_what_a_loss_of_its_own_keeps_is_not(tmp_path: Path) -> None:
    train = TRAIN.replace("import Net\n", "import Net\nfrom losses import CriticLoss\n").replace(
        "optimizer = torch.optim.SGD(model.groups(), ",
        "critic = CriticLoss()\n"
        'optimizer = torch.optim.SGD([*model.groups(), {"params": critic.critic.parameters()}], ',
    )
    nets = NETS.format(loss="CriticLoss", inner="critic").replace("self.adapt(x)", "self.adapt.critic(x)")
    found = converted(
        tmp_path,
        losses=LOSSES,
        nets=nets,
        train=train.replace("model(x)", "model(x) + critic(torch.ones(3))"),
    )
    assert found.status == "refused" or "prepare(model, critic, " in found.new_text
