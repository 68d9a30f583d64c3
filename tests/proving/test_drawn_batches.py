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


FIRST = """
if {first}:
    x, y = next(rounds)
    print(x.shape)
"""
DIVIDED = """
dist.init_process_group("gloo")
rounds = iter(DataLoader(data, batch_size=4, sampler=DistributedSampler(data)))
"""
SHARE = """
dist.init_process_group("gloo")
rank = dist.get_rank()
rounds = iter(DataLoader(torch.load("d.pt", map_location="cpu")[rank * 64 : (rank + 1) * 64], batch_size=4))
"""
PREPARED = """
accelerator = Accelerator()
rounds = iter(accelerator.prepare(DataLoader(data, batch_size=4)))
"""


@pytest.mark.parametrize(
    ("made", "head", "first", "is_right"),
    [
        (DIVIDED, "torch", "dist.get_rank() == 0", True),
        (SHARE, "torch", "rank == 0", True),
        (PREPARED, "accelerate", "accelerator.is_main_process", False),
    ],
)
def test_a_batch_that_the_main_process_alone_draws(made, head, first, is_right, tmp_path):
    """With torch's sampler nothing waits for the other ranks."""
    found = named(made + FIRST.format(first=first), tmp_path, head)
    assert found == ([] if is_right else [("ACC704", "x, y = next(rounds)")])
