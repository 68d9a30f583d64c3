"""Batches that are spread over the parameters of a function: `model(**batch)`."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelify.convert import convert_paths

NET = """\
import torch.nn as nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 1)

    def forward({parameters}):
        return self.fc(x) * float({info}.numpy().mean())
"""
TRAIN = """\
import torch
from torch.utils.data import DataLoader
from nets import Net

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
data = [{"x": torch.randn(4), "info": torch.randn(2)} for _ in range(32)]
loader = DataLoader(data, batch_size=4)
model = Net().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for batch in loader:
    optimizer.zero_grad()
    loss = CALL
    loss.pow(2).mean().backward()
    optimizer.step()
"""


def forward_of(folder: Path, call: str, parameters: str = "self, x, info", info: str = "info") -> str:
    """What becomes of the model's forward, whose module is converted with the script where `call` trains there."""
    (folder / "nets.py").write_text(NET.format(parameters=parameters, info=info))
    (folder / "train.py").write_text(TRAIN.replace("CALL", call))
    found = {c.source.path.name: c.new_text for c in convert_paths([folder / "train.py"]) if c.source.path}
    assert "accelerator.prepare(" in found["train.py"]
    return found.get("nets.py", (folder / "nets.py").read_text())


@pytest.mark.parametrize(
    "call",
    [
        'model(batch["x"], batch["info"])',
        "model(**batch)",
        "model(*batch.values())",
        'model(batch.pop("x").to(device), **batch)',
    ],
)
def test_what_forward_reads_of_it_is_copied(tmp_path: Path, call: str) -> None:
    assert "info.cpu().numpy()" in forward_of(tmp_path, call)


def one_file(call: str, parameters: str = "self, x, info", info: str = "info") -> str:
    net = NET.format(parameters=parameters, info=info)
    return net + TRAIN.replace("from nets import Net\n", "").replace("CALL", call)


@pytest.mark.parametrize(
    ("call", "parameters", "info"),
    [
        ("model(**batch)", "self, x, info", "info"),
        ("model(**batch)", "self, x=None, **rest", 'rest["info"]'),
        ('model(**{k: v.to(device) if k == "x" else v for k, v in batch.items()})', "self, x, info", "info"),
        ('model(**dict(x=batch["x"].to(device), info=batch["info"]))', "self, x, info", "info"),
    ],
)
def test_in_one_file(tmp_path: Path, call: str, parameters: str, info: str) -> None:
    (tmp_path / "train.py").write_text(one_file(call, parameters, info))
    (found,) = convert_paths([tmp_path / "train.py"])
    assert f"{info}.cpu().numpy()" in found.new_text


@pytest.mark.parametrize(
    "call",
    [
        'model(batch["x"].to(device), info=torch.ones(2))',
        'model(**{"x": batch["x"].to(device), "info": torch.ones(2)})',
        'model(info=torch.ones(2), **{"x": batch["x"].to(device)})',
    ],
)
def test_what_stays_on_the_host_is_left_there(tmp_path: Path, call: str) -> None:
    (tmp_path / "train.py").write_text(one_file(call))
    (found,) = convert_paths([tmp_path / "train.py"])
    assert "info.numpy()" in found.new_text
