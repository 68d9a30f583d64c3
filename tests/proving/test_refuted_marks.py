"""What a transform says of a test, and the engine proves to be the same on all ranks, is neither said nor marked."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelify.convert import convert_paths
from accelify.proving import prove

SCRIPT = """\
import torch
from torch import nn

x, y, held, wanted = torch.randn(64, 4), torch.randn(64, 1), torch.randn(32, 4), torch.randn(32, 1)
model, criterion = nn.Linear(4, 1), nn.MSELoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def score(model, x, y, criterion):
    with torch.no_grad():
        return criterion(model(x), y).item()


best, wait = 1e9, 0
for epoch in range(20):
    order = torch.randperm(len(x))
    for i in range(0, len(x), 8):
        rows = order[i : i + 8]
        a, b = x[rows], y[rows]
        optimizer.zero_grad()
        loss = criterion(model(a), b)
        loss.backward()
        optimizer.step()
    figure = {figure}
    print(epoch, figure)
    if figure < best:
        best, wait = figure, 0
    else:
        wait += 1
    if wait >= 3:
        break
"""


@pytest.mark.parametrize(
    ("figure", "said"),
    [("score(model, held, wanted, criterion)", False), ("score(model, a, b, criterion)", True)],
)
def test_an_early_stop(tmp_path: Path, figure: str, said: bool) -> None:
    (tmp_path / "train.py").write_text(SCRIPT.format(figure=figure))
    found = convert_paths([tmp_path / "train.py"])
    assert "# TODO(accelify ACC704)" in found[0].new_text
    prove(found, found[0])
    assert ("# TODO(accelify ACC704)" in found[0].new_text) is said
    assert any(one.code == "ACC405" for one in found[0].remaining) is said


SUMMED = """\
import torch
from torch import nn
from torch.utils.data import DataLoader


class Loss(nn.Module):
    def __init__(self, average=True):
        super().__init__()
        self.average = average

    def forward(self, out, target):
        rows = torch.sum(-target * out.log_softmax(1), dim=1)
        if self.average:
            return torch.mean(rows)
        return torch.sum(rows)


model, criterion = nn.Linear(4, 3), Loss({given})
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in DataLoader(torch.load("data.pt"), batch_size=8):
    loss = criterion(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(("given", "said"), [("", False), ("len(torch.load('data.pt')) > 10", True)])
def test_a_sum_that_no_caller_asks_for(tmp_path: Path, given: str, said: bool) -> None:
    (tmp_path / "train.py").write_text(SUMMED.format(given=given))
    found = convert_paths([tmp_path / "train.py"])
    prove(found, found[0])
    assert ("# TODO(accelify ACC705)" in found[0].new_text) is said
