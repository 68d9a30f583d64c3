"""Means over the rounds of an evaluation, of which a last, shorter one counts as much as a whole one."""

from __future__ import annotations

import pytest

from accelify.conversion import ConvertOptions
from accelify.convert import convert_source
from accelify.knowledge import Knowledge
from accelify.obligations import Status, validate
from accelify.source import Source
from tests.obligations.round_means import BY_CALLER, BY_SAMPLES, OVER_ROUNDS, script
from tests.transforms.support import PATH

KNOWLEDGE = Knowledge()
CASES = {**OVER_ROUNDS, **BY_CALLER, **{f"samples: {name}": parts for name, parts in BY_SAMPLES.items()}}


@pytest.mark.parametrize("name", CASES)
def test_means_over_rounds_are_noted_and_means_over_samples_are_not(name: str) -> None:
    converted = convert_source(Source.from_text(script(*CASES[name]), PATH), ConvertOptions("per-process"))
    found = validate(converted.new_text, None, KNOWLEDGE)
    # Of the first batches two processes take two each, a mean of means all the same.
    assert bool(found.means) is (not name.startswith("samples") or name == "samples: first batches")


SHARED = """\
import torch
from torch.utils.data import DataLoader, TensorDataset

data = TensorDataset(torch.ones(13, 4), torch.ones(13, 1))


def run_epoch(model, loader, optimizer=None):
    total, n = 0.0, 0
    for x, y in loader:
        loss = torch.nn.functional.mse_loss(model(x), y)
        if optimizer is not None:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        {counted}
    return total / n


train, val = DataLoader(data, batch_size=2{options}), DataLoader(data, batch_size=2{options})
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
run_epoch(model, train, optimizer)
print(run_epoch(model, val))
"""


@pytest.mark.parametrize(
    ("counted", "options", "mode", "noted"),
    [
        ("total += loss.item() * y.size(0); n += y.size(0)", "", "per-process", True),
        ("total += loss.item() * y.size(0); n += y.size(0)", "", "total", True),
        ("total += (model(x) > y).sum().item(); n += 1", "", "per-process", True),
        # No round is shorter than the others.
        ("total += loss.item() * y.size(0); n += y.size(0)", ", drop_last=True", "per-process", False),
    ],
)
def test_sums_over_shares_of_which_a_process_may_repeat_a_sample_are_noted(
    counted: str, options: str, mode: str, noted: bool
) -> None:
    text = SHARED.format(counted=counted, options=options)
    converted = convert_source(Source.from_text(text, PATH), ConvertOptions(mode))
    found = validate(converted.new_text, None, KNOWLEDGE)
    assert bool(found.sums) is noted


@pytest.mark.parametrize(
    ("counted", "options", "noted"),
    [
        ("total += loss.item(); n += 1", "", True),
        ("means = []; means.append(loss); total += sum(means).item(); n += 1", "", True),
        ("total += loss.item(); n += 1", ", drop_last=True", False),
        ("total += loss.item() * y.size(0); n += y.size(0)", "", False),
    ],
)
def test_means_over_rounds_of_which_the_processes_share_the_last_are_noted(
    counted: str, options: str, noted: bool
) -> None:
    text = SHARED.format(counted=counted, options=options)
    converted = convert_source(Source.from_text(text, PATH), ConvertOptions("total"))
    assert bool(validate(converted.new_text, None, KNOWLEDGE).means) is noted


@pytest.mark.parametrize("name", BY_SAMPLES)
def test_sums_over_gathered_samples_are_not_noted(name: str) -> None:
    converted = convert_source(
        Source.from_text(script(*BY_SAMPLES[name]), PATH), ConvertOptions("per-process")
    )
    assert validate(converted.new_text, None, KNOWLEDGE).sums == []


@pytest.mark.parametrize(("reduction", "times"), [("sum", True), ("mean", False)])
def test_a_mean_of_the_sums_of_the_batches_of_all_processes(reduction: str, times: bool) -> None:
    text = SUMS.format(reduction=reduction)
    converted = convert_source(Source.from_text(text, PATH), ConvertOptions("per-process"))
    named = validate(converted.new_text, None, KNOWLEDGE).of(Status.NAMED)
    assert [one.found for one in named] == ["printed: N times what it would be on a single process"] * times


SUMS = """\
import numpy as np
import torch
from torch.utils.data import DataLoader

model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 3))
loader = DataLoader(torch.ones(16, 3), batch_size=4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
losses = []
for x in loader:
    loss = torch.nn.functional.mse_loss(model(x), x, reduction="{reduction}")
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
print(np.mean(losses))
"""
