"""Rows that are chosen by their positions: `torch.where(y == 1)[0]` chooses as the mask `y == 1` does."""

from __future__ import annotations

import pytest

from accelify.convert import convert_source
from accelify.proving import prove
from accelify.source import Source

SCRIPT = """\
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
data = TensorDataset(torch.randn(20, 4), torch.randint(0, 2, (20,)).float())
loader = DataLoader(data, batch_size=4)
other = DataLoader(data, batch_size=4)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for x, y in loader:
    out = model(x)
    loss = {loss}
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
found, listed = 0, []
for x, y in other:
    out = model(x)
    {line}
print(found, listed)
"""


def named(line: str = "found += len(y)", loss: str = "nn.functional.mse_loss(out[:, 0], y)") -> set[str]:
    found = convert_source(Source.from_text(SCRIPT.format(line=line, loss=loss)))
    prove([found], found)
    return {one.code for one in found.remaining}


@pytest.mark.parametrize(
    "line",
    [
        "found += (out[y == 1] < 1).sum().item()",
        "found += torch.count_nonzero(out[torch.where(y == 1)[0]] < 1).item()",
        "ones, = torch.where(y == 1)\n    found += (out[ones] < 1).sum().item()",
        "ones = np.where(y.numpy() == 1)[0]\n    found += (out.numpy()[ones] < 1).sum()",
        "found += torch.where(y == 1, out[:, 0], y).sum().item()",
    ],
)
def test_what_is_counted_of_chosen_rows_that_were_gathered(line: str) -> None:
    assert not named(line)


@pytest.mark.parametrize(
    "line",
    [
        "found += torch.where(y == 1)[0].sum().item()",
        "listed += torch.where(y == 1)[0].tolist()",
        "found += out[torch.where(y == 1)[0]].mean().item()",
        "found += (out[torch.where(y == 1)[0]] < out.mean()).sum().item()",
    ],
)
def test_what_positions_in_larger_batches_change(line: str) -> None:
    assert named(line) & {"ACC701", "ACC303"}


@pytest.mark.parametrize("chosen", ["y == 1", "torch.where(y == 1)[0]"])
def test_a_mean_of_chosen_rows_is_no_mean_of_all(chosen: str) -> None:
    assert "ACC705" in named(loss=f"out[{chosen}].mean()")
