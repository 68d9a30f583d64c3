"""What the engine says of a list of batches that is put in another order."""

from __future__ import annotations

import pytest

from accelify.knowledge import Knowledge
from accelify.obligations import Status, validate

KNOWLEDGE = Knowledge()
TEXT = """\
import random
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader
from accelify.runtime import Accelerator
accelerator = Accelerator(cpu=True)
model = accelerator.prepare(nn.Linear(2, 3))
loader = accelerator.prepare(DataLoader(torch.load("d"), batch_size=6))
random.seed({seed})
rounds = [batch for batch in loader]
random.shuffle(rounds)
total = 0.0
for x, y in rounds:
    loss = F.cross_entropy(model(x), y)
    accelerator.backward(loss)
    total += loss.item()
accelerator.print(accelerator.reduce(total, reduction="mean") / len(rounds))
"""


@pytest.mark.parametrize(("seed", "wrong"), [("0", []), ("accelerator.process_index", ["loss", "content"])])
def test_batches_in_an_order_that_all_ranks_draw_stay_batches(seed: str, wrong: list[str]) -> None:
    found = validate(TEXT.format(seed=seed), None, KNOWLEDGE).of(Status.NAMED)
    assert [one.demand for one in found] == wrong
