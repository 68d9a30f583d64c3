"""Schedules in a script that accumulates gradients: a prepared one steps once for each window."""

from __future__ import annotations

import pytest

from tests.proving.several_programs import findings

PROGRAM = """
accelerator = Accelerator(gradient_accumulation_steps={window})
loader = DataLoader(data, batch_size=4, shuffle=True)
model = torch.nn.Linear(4, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
{length}
schedule = torch.optim.lr_scheduler.LinearLR(opt, 1.0, 0.0, total_iters=length)
model, opt, loader{target} = accelerator.prepare(model, opt, loader{source})
for epoch in range(3):
    for x, y in loader:
        with accelerator.accumulate(model):
            accelerator.backward(F.mse_loss(model(x), y))
            opt.step()
            schedule.step()
            opt.zero_grad()
"""
PREPARED = {"target": ", schedule", "source": ", schedule"}
PLAIN = {"target": "", "source": ""}


def said(tmp_path, window="2", length="length = len(loader) * 3", **prepared):
    text = PROGRAM.format(window=window, length=length, **prepared)
    return [one.message for one in findings(text, tmp_path, "accelerate") if one.code == "ACC706"]


@pytest.mark.parametrize(
    "length", ["length = len(loader) * 3", "batches = len(loader)\nepochs = 3\nlength = batches * epochs"]
)
def test_a_length_in_batches_is_too_long_for_windows(length, tmp_path):
    for window in ("2", "int(os.environ['STEPS'])"):
        (message,) = said(tmp_path, window, f"import os\n{length}", **PREPARED)
        assert "divide the length by gradient_accumulation_steps" in message


@pytest.mark.parametrize(
    ("window", "length"),
    [
        ("2", "length = len(loader) // 2 * 3"),
        ("1", "length = len(loader) * 3"),
        ("dict(steps=1)['steps']", "length = len(loader) * 3"),
    ],
)
def test_a_length_in_steps_and_windows_of_one_batch(window, length, tmp_path):
    assert said(tmp_path, window, length, **PREPARED) == []


def test_one_that_is_not_prepared_is_given_another_length_with_it(tmp_path):
    (message,) = said(tmp_path, **PLAIN)
    assert "prepare it, and give it its length in optimizer steps" in message
    (message,) = said(tmp_path, window="1", **PLAIN)
    assert message.endswith("N times too slowly; prepare it")


EACH_EPOCH = """
from {runtime} import Accelerator
accelerator = Accelerator()
loader = DataLoader(data, batch_size=4, shuffle=True)
model = torch.nn.Linear(4, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
schedule = torch.optim.lr_scheduler.StepLR(opt, 1, gamma=0.5)
model, opt, loader, schedule = accelerator.prepare(model, opt, loader, schedule)
for epoch in range(3):
    for x, y in loader:
        accelerator.backward(F.mse_loss(model(x), y))
        opt.step()
        opt.zero_grad()
    schedule.step()
"""


@pytest.mark.parametrize(("runtime", "codes"), [("accelerate", ["ACC706"]), ("accelify.runtime", [])])
def test_a_step_of_each_epoch(runtime, codes, tmp_path):
    found = findings(EACH_EPOCH.format(runtime=runtime), tmp_path)
    assert [one.code for one in found if one.code == "ACC706"] == codes
