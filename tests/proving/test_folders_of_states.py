"""The folder of a state that all processes save together."""

from __future__ import annotations

import pytest

from tests.proving.several_programs import named

TRAIN = """
import os, time
accelerator = Accelerator()
model = torch.nn.Linear(4, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(data, batch_size=4, shuffle=True)
model, opt, loader = accelerator.prepare(model, opt, loader)
for epoch in range(3):
    for x, y in loader:
        accelerator.backward(F.mse_loss(model(x), y))
        opt.step()
        opt.zero_grad()
    accelerator.save_state({folder})
"""


@pytest.mark.parametrize(
    "folder", ['os.path.join("out", time.strftime("%H%M%S"))', 'f"out/{accelerator.process_index}"']
)
def test_one_that_differs_between_processes_is_named(folder, tmp_path):
    text = TRAIN.format(folder=folder)
    assert named(text, tmp_path, "accelerate") == [("ACC703", f"accelerator.save_state({folder})")]


@pytest.mark.parametrize("folder", ['f"out/{epoch}"', 'os.path.join("out", "last")', ""])
def test_one_for_all_is_quiet(folder, tmp_path):
    assert named(TRAIN.format(folder=folder), tmp_path, "accelerate") == []


def test_one_that_main_alone_comes_to_is_of_no_other(tmp_path):
    save = "if accelerator.is_main_process:\n        accelerator.save_state(f'out/{loss.item()}')"
    text = TRAIN.replace("accelerator.save_state({folder})", "SAVE").replace("F.mse", "loss := F.mse")
    assert named(text.replace("SAVE", save), tmp_path, "accelerate") == []
    every = save.splitlines()[1].strip()
    assert named(text.replace("SAVE", every), tmp_path, "accelerate") == [("ACC703", every)]
