"""Running the command line inside the test's own process."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from accelify.cli.main import main

PLAIN = """\
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
torch.manual_seed(0)
data = TensorDataset(torch.randn(32, 4), torch.randn(32, 1))
loader = DataLoader(data, batch_size=8, shuffle=True)
model = torch.nn.Linear(4, 1).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())  # the last batch's
"""


@dataclass
class Outcome:
    """What a run of the command line left: exit code and both streams, as bytes and as text."""

    code: int
    stdout: bytes
    stderr: bytes

    @property
    def out(self) -> str:
        return self.stdout.decode()

    @property
    def err(self) -> str:
        return self.stderr.decode()


Run = Callable[..., Outcome]


@pytest.fixture
def run(
    capfdbinary: pytest.CaptureFixture[bytes],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
) -> Run:
    """`run("convert", path, stdin=b"...")`: the command's exit code and output."""

    # What a check has found before is no part of a test that does not ask for it.
    monkeypatch.setenv("ACCELIFY_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))

    def run_command(*words: str | Path, stdin: bytes = b"") -> Outcome:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        with pytest.raises(SystemExit) as stop:
            main([str(word) for word in words])
        captured = capfdbinary.readouterr()
        return Outcome(int(stop.value.code or 0), captured.out, captured.err)

    return run_command


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    """A plain training script that converts without a rest."""
    path = tmp_path / "train.py"
    path.write_text(PLAIN)
    return path
