"""The examples on the pages of rules: the wrong one is found under that rule, and the right one is not."""

from __future__ import annotations

import ast
import tomllib
from importlib.resources import files
from pathlib import Path
from textwrap import indent

import pytest

from accelify.linting import lint
from accelify.project import Imports
from accelify.rule_codes import NAMES
from accelify.source import Source

PAGES = tomllib.loads(files("accelify").joinpath("rules.toml").read_text(encoding="utf-8"))
HEAD = """\
import os
import time

import torch
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
from accelerate import Accelerator
from accelerate.utils import broadcast_object_list

data = TensorDataset(torch.ones(64, 4), torch.ones(64, 1))
"""
MADE = """\
accelerator = Accelerator()
model, criterion = torch.nn.Linear(4, 1), torch.nn.MSELoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(data, batch_size=8)
"""
PREPARED = f"{HEAD}{MADE}model, optimizer, loader = accelerator.prepare(model, optimizer, loader)\n"
STEP = """\
for x, y in loader:
    loss = criterion(model(x), y)
{}
    optimizer.step()
    optimizer.zero_grad()
"""
OF_MAIN = "if accelerator.is_main_process:\n{}\n"
EVALUATED = """\
model.eval()
counted = []
with torch.no_grad():
    for x, labels in loader:
{}
        counted.append(outputs)
"""
GROUPED = f"""\
{HEAD}import torch.distributed as dist

dist.init_process_group("gloo")
epochs = 3
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=8, sampler=sampler)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
{{}}
        optimizer.zero_grad()
        model(batch[0]).mean().backward()
        optimizer.step()
"""
BUILT = """\
accelerator = Accelerator()


def build():
    model = torch.nn.Linear(4, 1)
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


def train(model, optimizer):
    accelerator.backward(model(torch.ones(8, 4)).mean())
    optimizer.step()


"""
# What stands around the example of a rule, and how deep it stands there.
AROUND = {
    "ACC701": (f"{PREPARED}{{}}\n", 0),
    "ACC702": (f"{PREPARED}for epoch in range(3):\n{{}}\n", 4),
    "ACC703": (f"{PREPARED}{{}}\nos.makedirs(folder, exist_ok=True)\n", 0),
    "ACC704": (PREPARED + STEP, 4),
    "ACC707": (PREPARED + OF_MAIN, 4),
    "ACC708": (f"{HEAD}{BUILT}{{}}\n", 0),
    "ACC709": (f"{PREPARED}weights = [1.0]\n{{}}\nmodel.weights = weights\n", 0),
    "ACC710": (f"{PREPARED}correct = 0\nfor x, labels in loader:\n    prediction = model(x)\n{{}}\n", 4),
    "ACC711": (f"{HEAD}{MADE}{{}}\n", 0),
    "ACC712": (PREPARED + STEP, 4),
    "ACC713": (PREPARED + EVALUATED, 8),
    "ACC714": (f"{PREPARED}{{}}\n", 0),
    "ACC715": (f"{PREPARED}inputs = torch.ones(8, 4)\n{{}}\n", 0),
    "ACC716": (GROUPED, 0),
    "ACC717": (
        f"import torch_xla\n{PREPARED}total = 0.0\n{{}}\n    accelerator.backward(loss)\n    optimizer.step()\n",
        0,
    ),
}


def found(code: str, example: str, folder: Path) -> set[str]:
    around, depth = AROUND[code]
    path = folder / "train.py"
    path.write_text(around.replace("{}", indent(example.rstrip(), " " * depth)))
    return {one.code for one in lint(Source.read(path), Imports()).findings}


@pytest.mark.parametrize("code", AROUND)
def test_examples_are_what_check_finds(code: str, tmp_path: Path) -> None:
    wrong, right = (PAGES[code][which].replace("        ...\n", "") for which in ("wrong", "right"))
    assert code in found(code, wrong, tmp_path)
    assert code not in found(code, right, tmp_path)


@pytest.mark.parametrize("code", NAMES)
def test_every_page_is_whole(code: str) -> None:
    page = PAGES[code]
    assert page.keys() - {"wrong", "right", "advice"} == {"summary", "about", "seen", "fix", "out"}
    assert ("wrong" in page) == ("right" in page)
    for which in page.keys() & {"wrong", "right"}:
        ast.parse(page[which])
