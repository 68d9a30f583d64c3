"""An optimizer that is made again from one that a file held: `old.__class__(model.parameters(), **options)`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from accelify.convert import convert_paths

SCRIPT = """\
import sys

import torch
from torch.utils.data import DataLoader, TensorDataset


class {name}:
    def __init__(self, inner, limit):
        self.inner, self.limit = inner, limit

    def step(self):
        held = [p for group in self.inner.param_groups for p in group["params"]]
        torch.nn.utils.clip_grad_norm_(held, self.limit)
        self.inner.step()


class Runner:
    def __init__(self):
        self.optimizer = None

    def run(self, model, loader, path=None):
        if path:
            kept = torch.load(path, weights_only=False)
            model, self.optimizer = kept["model"], kept["optimizer"]
            inner = self.optimizer.inner
            options = dict(inner.param_groups[0])
            options.pop("params")
            self.optimizer.inner = inner.__class__(model.parameters(), **options)
        else:
            self.optimizer = {name}(torch.optim.SGD(model.parameters(), lr=0.1), 5)
        for x, y in loader:
            loss = torch.nn.functional.mse_loss(model(x), y)
            model.zero_grad()
            loss.backward()
            self.optimizer.step()
            print(round(loss.item(), 4))
        torch.save({"model": model, "optimizer": self.optimizer}, "state.pt")
        return model


def main():
    torch.manual_seed(0)
    loader = DataLoader(TensorDataset(torch.randn(32, 4), torch.randn(32, 1)), batch_size=4)
    model = torch.nn.Linear(4, 1)
    model = Runner().run(model, loader, sys.argv[1] if len(sys.argv) > 1 else None)
    print([round(w, 4) for w in model.weight.flatten().tolist()])


if __name__ == "__main__":
    main()
"""


def shown(folder: Path, *arguments: str) -> str:
    command = [sys.executable, "main.py", *arguments]
    run = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout


@pytest.mark.parametrize("name", ["Limited", "Optimizer"])
def test_the_last_one_made_is_prepared(tmp_path: Path, name: str) -> None:
    (tmp_path / "main.py").write_text(SCRIPT.replace("{name}", name))
    expected = (shown(tmp_path), shown(tmp_path, "state.pt")) if name == "Optimizer" else None
    (found,) = convert_paths([tmp_path / "main.py"])
    assert found.status == "converted", found.reason
    text = found.new_text
    assert "        self.inner = self.accelerator.prepare(self.inner)\n" in text
    assert "    inner = self.accelerator.prepare(inner)" not in text
    assert (
        "            model, self.optimizer.inner = self.accelerator.prepare(model, self.optimizer.inner)\n"
        in text
    )
    assert "self.accelerator.prepare(self.optimizer)" not in text
    if expected is not None:
        (tmp_path / "main.py").write_text(text)
        assert (shown(tmp_path), shown(tmp_path, "state.pt")) == expected


def test_a_second_name_that_steps_is_prepared_as_before(tmp_path: Path) -> None:
    script = SCRIPT.replace("{name}", "Limited").replace(
        "            self.optimizer.step()\n", "            inner.step()\n"
    )
    begin, end = script.index("        if path:"), script.index("        for x, y in loader:")
    made = "        inner = torch.optim.SGD(model.parameters(), lr=0.1)\n        held = inner\n"
    (tmp_path / "main.py").write_text(
        script[:begin] + made + script[end:].replace("self.optimizer}", "held}")
    )
    (found,) = convert_paths([tmp_path / "main.py"])
    assert "inner = self.accelerator.prepare(inner)" in found.new_text
