"""Batches that a generator gives, or that `next` takes: on some ranks fewer than on others, which wait for them."""

from __future__ import annotations

import pytest

from tests.proving.several_programs import named

TEXT = """
import time
{setup}
accelerator = Accelerator()
model = torch.nn.Linear(4, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
model, opt, loader = accelerator.prepare(model, opt, DataLoader(data, batch_size=4))
{rows}
for x, y in {over}:
    opt.zero_grad()
    accelerator.backward(F.mse_loss(model(x), y))
    opt.step()
"""
LINE = "accelerator.backward(F.mse_loss(model(x), y))"
FILTER = """
def usable(loader):
    for x, y in loader:
        if {condition}:
            {skip}
        yield x, y
"""


@pytest.mark.parametrize(
    ("condition", "skip", "is_right"),
    [
        ("y.sum() == 0", "continue", False),
        ("time.time() > 1e9", "return", False),
        ("y.sum() == 0", "yield x, x\n            continue", True),
        ("y.sum() == 0", "y = y + 1", True),
        ("time.time", "pass", True),
    ],
)
def test_a_generator_that_leaves_batches_out(condition, skip, is_right, tmp_path):
    setup = FILTER.format(condition=condition, skip=skip)
    found = named(TEXT.format(setup=setup, rows="", over="usable(loader)"), tmp_path, "accelerate")
    assert (LINE in [line for _, line in found]) != is_right


TIMED = """
def for_minutes(loader, minutes):
    {begin}
    while {condition}:
        yield from loader
"""


@pytest.mark.parametrize(
    ("begin", "condition", "is_right"),
    [
        ("end = time.time() + 60 * minutes", "time.time() < end", False),
        ("passes = 0", "passes < minutes", True),
        ("pass", "True", True),
    ],
)
def test_a_generator_that_ends_by_the_clock(begin, condition, is_right, tmp_path):
    setup = TIMED.format(begin=begin, condition=condition)
    found = named(TEXT.format(setup=setup, rows="", over="for_minutes(loader, 3)"), tmp_path, "accelerate")
    assert (LINE in [line for _, line in found]) != is_right


SKIPPED = """
accelerator = Accelerator()
model = torch.nn.Linear(4, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
model, opt, loader = accelerator.prepare(model, opt, DataLoader(data, batch_size=4))
rows = iter(loader)
while True:
    try:
        x, y = next(rows)
    except {caught}:
        {handled}
    opt.zero_grad()
    accelerator.backward(F.mse_loss(model(x), y))
    opt.step()
"""


@pytest.mark.parametrize(
    ("caught", "handled", "is_right"),
    [
        ("StopIteration:\n        break\n    except Exception", "continue", False),
        ("RuntimeError", "continue", False),
        ("StopIteration", "break", True),
        ("Exception", "rows = iter(loader)\n        x, y = next(rows)", True),
        ("Exception", "raise", True),
    ],
)
def test_a_batch_that_one_process_cannot_read(caught, handled, is_right, tmp_path):
    found = named(SKIPPED.format(caught=caught, handled=handled), tmp_path, "accelerate")
    assert (("ACC704", LINE) in found) != is_right
