"""A function of another module that chooses a device and shows it goes on to show it."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelify.convert import convert_paths

HELPERS = """\
import torch


def get_device(gpu=True):
    device = torch.device("cuda" if gpu and torch.cuda.is_available() else "cpu")
    {shown}
    return device
"""
SCRIPT = """\
import torch
from torch.utils.data import DataLoader, TensorDataset

from helpers import get_device

device = get_device(gpu=True)
model = torch.nn.Linear(3, 1).to(device)
loader = DataLoader(TensorDataset(torch.randn(32, 3)), batch_size=4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for (x,) in loader:
    loss = model(x.to(device)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("shown", "stays"),
    [("print('Running on', device)", True), ("gpu = False", False), ("torch.cuda.empty_cache()", False)],
)
def test_what_a_helper_shows_besides(tmp_path: Path, shown: str, stays: bool) -> None:
    (tmp_path / "helpers.py").write_text(HELPERS.format(shown=shown))
    (tmp_path / "train.py").write_text(SCRIPT)
    (found,) = convert_paths([tmp_path / "train.py"])
    assert "\ndevice = accelerator.device\n" in found.new_text
    shows = "if accelerator.is_main_process:\n    get_device(gpu=True)\ndevice ="
    assert (shows in found.new_text) is stays
    assert ("get_device(" in found.new_text) is stays
