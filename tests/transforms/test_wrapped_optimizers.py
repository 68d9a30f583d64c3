"""Optimizers that a class of another module keeps, and steps."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.transforms.test_project_roles import project

SCHEDULED = """\
class Scheduled:
    def __init__(self, optimizer, steps=10):
        self._optimizer = optimizer
        self.steps, self.n = steps, 0

    def step_and_update(self):
        self.n += 1
        for group in self._optimizer.param_groups:
            group["lr"] = 0.1 * min(1, self.n / self.steps)
        self._optimizer.step()

    def zero_grad(self):
        self._optimizer.zero_grad()
"""
HEAD = """\
import torch
from torch.utils.data import DataLoader, TensorDataset

from scheduled import Scheduled

"""
IN_CLASS = """
class Trainer:
    def __init__(self, loader):
        self.loader = loader
        self.model = torch.nn.Linear(4, 1)
        self.optim = torch.optim.Adam(self.model.parameters(), lr=0.1)
        self.schedule = Scheduled(self.optim, 10)

    def train(self):
        for x, y in self.loader:
            loss = (self.model(x) - y).pow(2).mean()
            self.schedule.zero_grad()
            loss.backward()
            self.schedule.step_and_update()


data = TensorDataset(torch.randn(40, 4), torch.randn(40, 1))
Trainer(DataLoader(data, batch_size=4, shuffle=True)).train()
"""
AT_TOP = """
data = TensorDataset(torch.randn(40, 4), torch.randn(40, 1))
loader = DataLoader(data, batch_size=4)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
schedule = Scheduled(optimizer)
for x, y in loader:
    schedule.zero_grad()
    loss = (model(x) - y).pow(2).mean()
    loss.backward()
    schedule.step_and_update()
"""
INLINE = AT_TOP.replace("optimizer = torch", "schedule = Scheduled(torch").replace(
    "lr=0.1)\nschedule = Scheduled(optimizer)", "lr=0.1))"
)
RETURNED = AT_TOP.replace("optimizer = torch", "def make(net):\n    return Scheduled(torch").replace(
    "model.parameters(), lr=0.1)\nschedule = Scheduled(optimizer)",
    "net.parameters(), lr=0.1))\n\n\nschedule = make(model)",
)


@pytest.mark.parametrize(
    ("script", "prepared"),
    [
        (IN_CLASS, "self.accelerator.prepare(\n            self.model, self.optim, self.loader\n        )"),
        (AT_TOP, "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)\nschedule ="),
        (
            INLINE,
            "model, schedule._optimizer, loader = accelerator.prepare(model, schedule._optimizer, loader)\n",
        ),
        (RETURNED, "model, loader = accelerator.prepare(model, loader)\n"),  # it has no name here
    ],
    ids=["in a class", "at the top", "inline", "returned"],
)
def test_an_optimizer_that_another_module_steps_is_prepared(
    tmp_path: Path, script: str, prepared: str
) -> None:
    texts = project(tmp_path, main=HEAD + script, scheduled=SCHEDULED)
    assert prepared in texts["main"]
    assert texts["scheduled"] == SCHEDULED
