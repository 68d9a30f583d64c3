"""Evaluations that draw their batches by hand."""

from __future__ import annotations

import pytest

from tests.proving.several_programs import named

TEXT = """
import statistics
accelerator = Accelerator()
model = torch.nn.Linear(4, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
model, opt, train, valid = accelerator.prepare(model, opt, DataLoader(data), DataLoader(data))
for epoch in range(3):
    for x, y in train:
        opt.zero_grad()
        accelerator.backward(F.mse_loss(model(x), y))
        opt.step()
    found = []
    rows = iter(valid)
    for _ in range(10):
        x, y = next(rows)
        with torch.no_grad():
            loss = F.mse_loss(model(x), y)
        found.append(LOSS.item())
    accelerator.print(SHOWN)
"""
TRAINED = """
accelerator = Accelerator()
model = torch.nn.Linear(4, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
model, opt, train = accelerator.prepare(model, opt, DataLoader(data))
rows = iter(train)
for number in range(10):
    batches = [next(rows) for _ in range(4)]
    for x, y in batches:
        loss = F.mse_loss(model(x), y)
        accelerator.backward(loss)
    opt.step()
    accelerator.print(loss.item())
"""


@pytest.mark.parametrize("shown", ["statistics.mean(found)", "sum(found) / 10"])
def test_a_mean_of_one_share(shown, tmp_path):
    text = TEXT.replace("SHOWN", shown)
    line = f"accelerator.print({shown})"
    assert named(text.replace("LOSS", "loss"), tmp_path, "accelerate") == [("ACC701", line)]
    assert named(text.replace("LOSS", "accelerator.gather(loss).mean()"), tmp_path, "accelerate") == []


def test_the_loss_of_a_round_of_training(tmp_path):
    """It is for information: no finding, however its batches are drawn."""
    assert named(TRAINED, tmp_path, "accelerate") == []
