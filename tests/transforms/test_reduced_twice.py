"""Helpers that reduce over the processes by themselves, in scripts that distribute nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelify.conversion import Conversion
from accelify.convert import convert_project
from accelify.source import Source
from tests.transforms.test_real_kinds import HEAD

HELPERS = """\
import torch
import torch.distributed as dist


def world():
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def reduce_value(value, average=True):
    if world() < 2:
        return value
    with torch.no_grad():
        dist.all_reduce(value)
        if average:
            value /= world()
        return value
"""
LOOP = """\
import torch
from helpers import reduce_value


def epoch(model, optimizer, loader):
    for x, y in loader:
        loss = (model(x) - y).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(reduce_value(loss.detach()).item())


@torch.no_grad()
def evaluate(model, loader):
    hits = torch.zeros(1)
    for x, y in loader:
        hits += (model(x).argmax(1) == y[:, 0]).sum()
    return reduce_value(hits).item()
"""
MAIN = (
    HEAD
    + """\
from loop import epoch, evaluate

model = nn.Linear(3, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(data, batch_size=4)
test_loader = DataLoader(data, batch_size=4)
epoch(model, optimizer, loader)
print(evaluate(model, test_loader))
"""
)


def converted(tmp_path: Path, loop: str = LOOP, helpers: str = HELPERS) -> list[Conversion]:
    (tmp_path / "main.py").write_text(MAIN)
    (tmp_path / "loop.py").write_text(loop)
    (tmp_path / "helpers.py").write_text(helpers)
    return convert_project(Source.read(tmp_path / "main.py"))


@pytest.mark.parametrize(
    "helpers",
    [
        HELPERS,
        HELPERS.replace("    with torch.no_grad():\n", "    if True:\n"),
        HELPERS.replace("def reduce_value", "@torch.no_grad()\ndef reduce_value"),
        HELPERS.replace("        if average:\n            value /=", "        value ="),
    ],
)
def test_a_helper_that_reduces_without_gradients_distributes_nothing(tmp_path: Path, helpers: str) -> None:
    found = converted(tmp_path, helpers=helpers.replace("value = world", "value = value / world"))
    assert [c.status for c in found] == ["converted"] * 2, found[0].reason
    assert "ACC310" not in [f.code for c in found for f in c.remaining]


def test_a_helper_that_adds_up_what_is_gathered_already(tmp_path: Path) -> None:
    found = converted(tmp_path, LOOP.replace("reduce_value(hits)", "reduce_value(hits, average=False)"))
    (said,) = [f.message for c in found for f in c.remaining if f.code == "ACC310"]
    assert "`hits` is that of all of them already" in said


def test_a_module_that_evaluates_with_collectives_of_its_own_is_distributed(tmp_path: Path) -> None:
    evaluates = HELPERS + "\n\n@torch.no_grad()\ndef score(model, x):\n    return dist.all_reduce(model(x))\n"
    loop = LOOP.replace("import reduce_value", "import reduce_value, score") + "    score(model, x)\n"
    (found,) = converted(tmp_path, loop, evaluates)
    assert found.status == "refused"
