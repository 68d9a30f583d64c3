"""The Accelerator for what a `def` or a `class` evaluates where it stands, before there is one."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelify.conversion import Conversion
from accelify.convert import convert_paths

COSTS = """\
from torch import nn


class Cost(object):
    def __init__(self, criterion):
        self.criterion = criterion
        self.total = 0

    def add(self, out, target):
        self.total = self.criterion(out, target)

    def backward(self):
        self.total.backward()


class Squares(Cost):
    def __init__(self):
        super().__init__(nn.MSELoss())
"""
RUNNER = """\
import torch

from costs import Squares


class Runner(object):
    def __init__(self, model, {parameter}, rate=0.1):
        self.model, self.cost = model, cost
        self.optimizer = torch.optim.SGD(model.parameters(), lr=rate)

    def run(self, batches):
        for x, y in batches:
            self.cost.add(self.model(x), y)
            self.optimizer.zero_grad()
            self.cost.backward()
            self.optimizer.step()
"""
MAIN = """\
import torch
from torch.utils.data import DataLoader, TensorDataset

from costs import Squares
from runner import Runner

torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
loader = DataLoader(TensorDataset(torch.randn(32, 4), torch.randn(32, 1)), batch_size=4)
{lines}
print(float(model.weight.sum()))
"""
ONCE = "Runner(model).run(loader)"


def converted(
    folder: Path, lines: str = ONCE, parameter: str = "cost=Squares()", runner: str = RUNNER
) -> dict[str, Conversion]:
    files = {
        "costs": COSTS,
        "runner": runner.replace("{parameter}", parameter),
        "main": MAIN.format(lines=lines),
    }
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    found = convert_paths([folder / "main.py"])
    for one in found:
        assert one.source.path is not None
        if one.changed and one.new_text:
            compile(one.new_text, "new.py", "exec")
            Path(one.source.path).write_text(one.new_text)
    return {Path(one.source.path).stem: one for one in found if one.source.path is not None}


@pytest.mark.parametrize(
    "lines",
    [
        ONCE,
        "first, second = Runner(model), Runner(model, rate=0.2)\nfirst.run(loader)\nsecond.run(loader)",
        "for rate in (0.1, 0.2):\n    Runner(model, rate=rate).run(loader)",
        "Runner(model, None, 0.2)\n" + ONCE,
    ],
)
def test_one_in_a_default_is_not_made_again(tmp_path: Path, lines: str) -> None:
    """What stands in a header is made before the Accelerator: then the group is left alone, with the reason."""
    found = converted(tmp_path, lines)
    assert found["main"].status == "refused"
    assert "Cost" in found["main"].reason
    assert "line 7" in found["main"].reason


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("class Runner(object):\n", "class Runner(object):\n    kept = Squares()\n\n"),
        ("    def run(self", "    @noted(Squares())\n    def run(self"),
        ("class Runner(object):", "class Runner(noted(Squares())(object)):"),
    ],
)
def test_nothing_is_known_where_a_class_is_defined(tmp_path: Path, before: str, after: str) -> None:
    noted = "def noted(cost):\n    return lambda inner: inner\n\n\nclass Runner"
    runner = RUNNER.replace(before, after).replace("class Runner", noted, 1)
    found = converted(tmp_path, runner=runner)
    assert found["main"].status == "refused"
    assert "Squares" in found["main"].reason or "Cost" in found["main"].reason
