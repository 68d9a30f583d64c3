"""A second model, made under the same name behind the training: `model = Net()` and its best weights, to look at."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from accelify.convert import convert_paths

SCRIPT = """\
import torch
from torch import nn


def restore(model, optimizer, path):
    kept = torch.load(path)
    model.load_state_dict(kept["model"])
    if optimizer is not None:
        optimizer.load_state_dict(kept["optimizer"])
    return model, optimizer


def train(model, x, path):
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    model, optimizer = restore(model, optimizer, "first.pt")
    for _ in range(3):
        optimizer.zero_grad()
        loss = model(x).pow(2).mean()
        loss.backward()
        optimizer.step()
        print(round(loss.item(), 4))
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)


if __name__ == "__main__":
    torch.manual_seed(0)
    x = torch.ones(8, 4)
    model = nn.Linear(4, 4)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, "first.pt")
    train(model, x, "last.pt")
    model = nn.Linear(4, 4)
    model, _ = restore(model, None, "last.pt")
    print([round(value, 4) for value in model(x)[0].tolist()])
"""
GUARDED = 'if __name__ == "__main__":\n'


def shown(folder: Path) -> list[str]:
    run = subprocess.run([sys.executable, "main.py"], cwd=folder, capture_output=True, text=True, check=True)
    return run.stdout.splitlines()


def test_it_is_prepared_where_it_is_made(tmp_path: Path) -> None:
    """In the block of the script's own run: behind that, nothing could ask the Accelerator any more."""
    path = tmp_path / "main.py"
    path.write_text(SCRIPT)
    expected = shown(tmp_path)
    (found,) = convert_paths([path])
    assert found.status == "converted", found.reason
    begin = found.new_text.index(GUARDED)
    guarded = found.new_text[begin:].splitlines()
    restored = next(i for i, line in enumerate(guarded) if "restore(" in line)
    assert guarded[restored + 1] == "    model = accelerator.prepare(model)"
    path.write_text(found.new_text)
    assert shown(tmp_path) == expected


def test_the_first_is_prepared_once(tmp_path: Path) -> None:
    """A function that loads what it is given makes no model of the one that `train` is handed."""
    (tmp_path / "main.py").write_text(SCRIPT)
    (found,) = convert_paths([tmp_path / "main.py"])
    assert "    optimizer = accelerator.prepare(optimizer)\n    for _ in range(3):" in found.new_text
    assert found.new_text.count("model = accelerator.prepare(model)") == 2


@pytest.mark.parametrize("header", ["for _ in range(2):", "while True:"])
def test_in_a_loop_it_is_prepared_for_the_next_round(tmp_path: Path, header: str) -> None:
    """What one round makes behind its training, the next one trains."""
    begin = SCRIPT.index("    train(model")
    rest = "\n".join("    " + line for line in SCRIPT[begin:].splitlines()) + "\n"
    (tmp_path / "main.py").write_text(SCRIPT[:begin] + f"    {header}\n" + rest)
    (found,) = convert_paths([tmp_path / "main.py"])
    assert found.status == "converted", found.reason
    again = found.new_text.index("        model = nn.Linear(4, 4)")
    assert "        model = accelerator.prepare(model)" in found.new_text[again:]
