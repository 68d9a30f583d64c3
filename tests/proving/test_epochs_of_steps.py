"""Epochs that a script counts by a number of steps: by the batches that each process goes through."""

from __future__ import annotations

import pytest

from tests.proving.several_programs import named

PROGRAM = """
import math
accelerator = Accelerator(OPTIONS)
loader = DataLoader(data, batch_size=4)
model = torch.nn.Linear(4, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
BEFORE
model, opt, loader = accelerator.prepare(model, opt, loader)
AFTER
for epoch in range(epochs):
    for x, y in loader:
        opt.zero_grad()
        accelerator.backward(F.mse_loss(model(x), y))
        opt.step()
"""
EPOCHS = "epochs = math.ceil(1000 / per_epoch)"
NAMED = [("ACC706", "for epoch in range(epochs):")]


@pytest.mark.parametrize("length", ["len(loader)", "len(loader) // 2", "len(data) // 4"])
@pytest.mark.parametrize("epochs", [EPOCHS, "epochs = 1000 // per_epoch + 1"])
def test_the_batches_before_prepare_are_those_of_all(length, epochs, tmp_path):
    text = PROGRAM.replace("BEFORE", f"per_epoch = {length}").replace("AFTER", epochs)
    assert named(text.replace("OPTIONS", ""), tmp_path, "accelerate") == NAMED
    alone = text.replace("OPTIONS", "split_batches=True")
    assert "len(loader)" not in length or named(alone, tmp_path, "accelerate") == []


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("per_epoch = len(loader)", f"per_epoch = len(loader)\n{EPOCHS}"),
        ("per_epoch = len(loader) // accelerator.num_processes", EPOCHS),
        ("per_epoch = len(loader)\nsteps = 3 * per_epoch", "epochs = steps // per_epoch"),
        ("", "epochs = 1000 // 7"),
    ],
)
def test_the_batches_of_each_process(before, after, tmp_path):
    text = PROGRAM.replace("BEFORE", before).replace("AFTER", after).replace("OPTIONS", "")
    assert named(text, tmp_path, "accelerate") == []
