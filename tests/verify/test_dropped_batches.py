"""Batches that `drop_last` leaves out, as they are too few for all ranks: schedules count them all the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from accelify.convert import convert_source
from accelify.runtime.data.sharding import BatchSamplerShard
from accelify.source import Source
from accelify.verify.compare.verdict import Verdict
from accelify.verify.session import Report

SCRIPT = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
loader = DataLoader(TensorDataset(torch.randn(56, 4), torch.randn(56, 1)), 8, shuffle=True, drop_last=True)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=3 * len(loader))
for epoch in range(3):
    for x, y in loader:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        schedule.step()
"""


@pytest.mark.distributed
def test_the_learning_rate_after_a_pass_is_the_originals(verify_pair: Callable[..., Report]) -> None:
    converted = convert_source(Source.from_text(SCRIPT, Path("train.py"))).new_text
    report = verify_pair(SCRIPT, converted, processes=(2,), steps=21)
    verdicts = {check.key: check.verdict for one in report.comparisons for check in one.checks}
    assert set(verdicts.values()) <= {Verdict.EQUAL, Verdict.ROUNDING}


@pytest.mark.parametrize(("ranks", "left_out"), [(1, 0), (2, 1), (3, 1), (4, 3), (7, 0)])
def test_the_last_step_of_a_pass_knows_them(ranks: int, left_out: int) -> None:
    from torch.utils.data import BatchSampler, SequentialSampler

    batches = BatchSampler(SequentialSampler(range(56)), 8, drop_last=True)
    shard = BatchSamplerShard(batches, ranks, 0)
    drawn = iter(shard)
    found = [(one, shard.shares[-1].left_out) for one in drawn]
    assert [n for _, n in found] == [0] * (7 // ranks - 1) + [left_out]
