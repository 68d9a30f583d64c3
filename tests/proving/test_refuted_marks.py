"""What a transform says of a test, and the engine proves to be the same on all ranks, is neither said nor marked."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelify.convert import convert_paths
from accelify.proving import prove

SCRIPT = """\
import torch
from torch.utils.data import DataLoader

x, y = torch.randn(32, 4), torch.randn(32, 1)
loader = DataLoader(torch.load("data.pt"), batch_size=8)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def score(model, x, y):
    with torch.no_grad():
        return torch.nn.functional.mse_loss(model(x), y).item()


best, wait = 1e9, 0
for epoch in range(20):
    for a, b in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(a), b)
        loss.backward()
        optimizer.step()
    figure = {figure}
    wait = 0 if figure < best else wait + 1
    best = min(best, figure)
    if wait >= 3:
        break
"""


@pytest.mark.parametrize(
    ("figure", "said"), [("score(model, x, y)", False), ("float(sorted(loss.tolist() for _ in x)[0])", True)]
)
def test_an_early_stop(tmp_path: Path, figure: str, said: bool) -> None:
    (tmp_path / "train.py").write_text(SCRIPT.format(figure=figure))
    found = convert_paths([tmp_path / "train.py"])
    assert "# TODO(accelify ACC405)" in found[0].new_text
    prove(found, found[0])
    assert ("# TODO(accelify ACC405)" in found[0].new_text) is said
    assert any(one.code == "ACC405" for one in found[0].remaining) is said
