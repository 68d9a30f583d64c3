"""Losses that a script's own GradScaler scales are compared as they are before it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from accelify.verify.compare.verdict import Verdict
from accelify.verify.session import Report

pytestmark = pytest.mark.distributed

ORIGINAL = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(torch.randn(32, 4), torch.randn(32, 1)), batch_size=8)
scaler = torch.amp.GradScaler("cpu")
for x, y in loader:
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
"""
CONVERTED = (
    ORIGINAL.replace(
        "torch.manual_seed",
        "from accelify.runtime import Accelerator\n"
        "accelerator = Accelerator(cpu=True, split_batches=True)\ntorch.manual_seed",
    )
    .replace(
        "scaler = ", "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)\nscaler = "
    )
    .replace("scaler.scale(loss).backward()", "accelerator.backward(scaler.scale(loss))")
)


def test_a_scaler_that_the_script_keeps(verify_pair: Callable[..., Report]) -> None:
    report = verify_pair(ORIGINAL, CONVERTED, processes=(2,))
    verdicts = {check.key: check.verdict for one in report.comparisons for check in one.checks}
    assert verdicts["losses"] in (Verdict.EQUAL, Verdict.ROUNDING)
    assert verdicts["weights"] in (Verdict.EQUAL, Verdict.ROUNDING)
