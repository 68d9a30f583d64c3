"""Iterators that are made anew in the loop that draws from them, by the number of its rounds."""

from __future__ import annotations

import pytest

from accelify.conversion import Conversion, ConvertOptions
from accelify.convert import convert_source
from accelify.source import Source

SCRIPT = """\
import math
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

batch_size, epochs = 4, 3
data = TensorDataset(torch.randn(36, 3))
model = nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(data, batch_size, shuffle=True)


def train():
    rounds = {rounds}
    steps = {steps}
    for i in range(steps):
        if {test}:
            batches = iter({loader})
        {take}
        loss = model(x).pow(2).mean()
        for group in optimizer.param_groups:
            group["lr"] = 0.1 * (1 - i / steps)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    {after}


train()
"""
MADE = "DataLoader(data, batch_size, shuffle=True)"
CEIL = "math.ceil(len(data) / batch_size)"
CAUGHT = """try:
            (x,) = next(batches)
        except StopIteration:
            continue"""


def convert(
    rounds: str = CEIL,
    *,
    steps: str = "epochs * rounds",
    test: str = "i % rounds == 0",
    loader: str = MADE,
    take: str = "(x,) = next(batches)",
    after: str = "",
    batch_size: str = "per-process",
) -> Conversion:
    text = SCRIPT.format(rounds=rounds, steps=steps, test=test, loader=loader, take=take, after=after)
    options = ConvertOptions(batch_size=batch_size)
    conversion = convert_source(Source.from_text(text), options)
    assert conversion.status == "converted", conversion.reason
    again = convert_source(Source.from_text(conversion.new_text), options)
    assert not {"ACC401", "ACC412"} & {f.code for f in again.remaining} or "TODO" in conversion.new_text
    return conversion


def codes(conversion: Conversion) -> set[str]:
    return {f.code for f in [*conversion.applied, *conversion.remaining]}


@pytest.mark.parametrize("loader", [MADE, "loader"])
@pytest.mark.parametrize("test", ["i % rounds == 0", "i == 0 or not i % rounds"])
@pytest.mark.parametrize(
    ("rounds", "after"),
    [
        (CEIL, "math.ceil(len(data) / batch_size / accelerator.num_processes)"),
        ("len(data) // batch_size", "len(data) // batch_size // accelerator.num_processes"),
        ("len(data) // batch_size + 1", "len(data) // batch_size // accelerator.num_processes + 1"),
        ("int(len(data) / batch_size)", "int(len(data) / batch_size / accelerator.num_processes)"),
    ],
)
def test_the_rounds_of_an_epoch_are_those_of_one_process(
    rounds: str, after: str, test: str, loader: str
) -> None:
    conversion = convert(rounds, test=test, loader=loader)
    assert f"    rounds = {after}\n" in conversion.new_text
    assert "ACC401" not in codes(conversion)
    assert "ACC412" in {f.code for f in conversion.applied}


@pytest.mark.parametrize(
    "other",
    [
        {"rounds": "9"},
        {"rounds": "(len(data) + batch_size - 1) // batch_size"},
        {"after": "print(loss.item() / rounds)"},
        {"after": "torch.optim.lr_scheduler.StepLR(optimizer, steps).step()"},
        {"steps": "epochs * math.ceil(len(data) / batch_size)"},
        {"test": "i % math.ceil(len(data) / batch_size) == 0"},
    ],
)
def test_others_are_left_to_a_person(other: dict[str, str]) -> None:
    conversion = convert(**other)
    assert "        # TODO(accelify ACC706): " in conversion.new_text
    assert "num_processes" not in conversion.new_text


@pytest.mark.parametrize(
    "other",
    [
        {"batch_size": "total"},
        {"take": CAUGHT},
        {"take": "x = data[i][0]"},
        {"rounds": "len(loader)", "loader": "loader"},
        {"test": "i == 0"},
    ],
)
def test_what_ends_with_the_batches_stays(other: dict[str, str]) -> None:
    conversion = convert(**other)
    assert "ACC412" not in codes(conversion)
    assert "num_processes" not in conversion.new_text
