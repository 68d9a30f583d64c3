"""Dictionaries of which all keys are known, functions that call themselves for parts, rows along another axis."""

from __future__ import annotations

import pytest

from accelify.knowledge import Knowledge
from accelify.obligations import Obligation, Status, validate

KNOWLEDGE = Knowledge()
FRAME = """\
import torch
from torch import nn
from torch.utils.data import DataLoader
from accelify.runtime import Accelerator
accelerator = Accelerator()
model = nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
train = DataLoader(torch.load("data.pt"), batch_size=8, shuffle=True)
loader = DataLoader(torch.load("data.pt"), batch_size=8)
model, optimizer, train, loader = accelerator.prepare(model, optimizer, train, loader)
{text}
"""
TRACKER = """\
class Tracker:
    def __init__(self, *keys):
        self.data = {{k: {{"total": 0, "count": 0}} for k in keys}}

    def update(self, key, value):
        self.data[key]["total"] += value
        self.data[key]["count"] += 1

    def result(self):
        return {{k: v["total"] / v["count"] for k, v in self.data.items()}}


def run(batches, tracker, trains):
    for x, y in batches:
        out = model(x)
        if trains:
            accelerator.backward(nn.functional.cross_entropy(out, y))
            optimizer.step()
        else:
            out, y = accelerator.gather_for_metrics((out, y))
        tracker.update("loss", nn.functional.cross_entropy(out, y).item())
    return tracker.result()


for epoch in range(3):
    log = {{"epoch": epoch}}
    log.update(run(train, Tracker("loss", "acc"), True))
    log.update(**{{"val_" + k: v for k, v in run(loader, Tracker("loss", "acc"), False).items()}})
    if log["{key}"] > 3:
        break
"""
RECURSION = """\
def to_device(data, device):
    if isinstance(data, (list, tuple)):
        return [to_device(x, device) for x in data]
    return data.to(device, non_blocking=True)


class Moved:
    def __init__(self, batches):
        self.batches = batches

    def __iter__(self):
        for batch in self.batches:
            yield to_device(batch, accelerator.device)


for x, y in Moved(train):
    accelerator.backward(nn.functional.cross_entropy(model(x), y{part}))
    optimizer.step()
seen = []
for x, y in Moved(loader):
    out, y = accelerator.gather_for_metrics((model(x), y))
    seen.append(out.argmax(1) == y)
accelerator.print(torch.cat(seen).float().mean())
"""


def named(text: str) -> list[Obligation]:
    return validate(FRAME.format(text=text), None, KNOWLEDGE).of(Status.NAMED)


PADDED = """\
def collate(rows):
    padded = torch.full((len(rows), 9), {label})
    for row, given in zip(padded, rows):
        row[: len(given)] = given
    return padded, padded
criterion = torch.nn.CrossEntropyLoss({asked})
for x, y in accelerator.prepare(DataLoader(torch.load("rows.pt"), batch_size=4, collate_fn=collate)):
    accelerator.backward(criterion(model(x).flatten(0, 1), y.flatten()))
"""


@pytest.mark.parametrize(
    ("label", "asked", "right"),
    [
        ("-100", "", False),
        ("-100", "ignore_index=-100", False),
        ("0", "ignore_index=-100", True),
        ("0", "", True),
    ],
)
def test_labels_of_rows_that_are_left_out(label: str, asked: str, right: bool) -> None:
    found = [one for one in named(PADDED.format(label=label, asked=asked)) if one.demand == "loss"]
    assert (found == []) == right


@pytest.mark.parametrize(("key", "right"), [("val_loss", True), ("loss", False), ("epoch", True)])
def test_each_key_has_its_figure(key: str, right: bool) -> None:
    assert (named(TRACKER.format(key=key)) == []) == right


@pytest.mark.parametrize(("part", "right"), [("", True), (", ignore_index=0", False)])
def test_what_calls_itself_for_each_part_of_a_batch(part: str, right: bool) -> None:
    assert (named(RECURSION.format(part=part)) == []) == right


@pytest.mark.parametrize(
    ("turned", "right"), [("out", True), ("out.permute(1, 0, 2)", False), ("out.permute(0, 2, 1)", True)]
)
def test_rows_along_another_axis_are_not_gathered_by_the_first(turned: str, right: bool) -> None:
    text = f"""\
right = 0
for x, y in loader:
    out = model(x)
    out, y = accelerator.gather_for_metrics(({turned}, y))
    right += (out.argmax(1) == y).sum()
accelerator.print(right / len(loader.dataset))
"""
    assert (named(text) == []) == right


@pytest.mark.parametrize(
    ("weights", "right"), [("alpha.gather(0, y)", True), ("out.gather(0, y[:, None])", False)]
)
def test_the_entries_of_a_table_by_rows(weights: str, right: bool) -> None:
    text = f"""\
alpha = torch.tensor([0.3, 0.7], device=accelerator.device)
for x, y in train:
    out = model(x)
    loss = nn.functional.cross_entropy(out, y, reduction="none")
    accelerator.backward((loss * {weights}).mean())
    optimizer.step()
"""
    assert (named(text) == []) == right


@pytest.mark.parametrize(
    ("factor", "right"),
    [
        ("lambda step: 1 - step / total", True),
        ("lambda step: min(1, step / 100)", False),
        ("lambda step: 1 - step / (3 * 1000)", False),
    ],
)
def test_a_schedule_by_a_function_of_the_rounds_there_are(factor: str, right: bool) -> None:
    text = f"""\
total = 3 * len(train)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, {factor})
for epoch in range(3):
    for x, y in train:
        accelerator.backward(nn.functional.cross_entropy(model(x), y))
        optimizer.step()
        scheduler.step()
"""
    assert (named(text) == []) == right


@pytest.mark.parametrize(
    ("count", "right"),
    [
        ("len(loader)", True),
        ("max(1, len(loader))", True),
        ("max(rounds, 1)", True),
        ("(len(loader) or 1)", True),
        ("min(rounds, 100)", False),
        ("max(rounds, 100)", False),
        ("100", False),
    ],
)
def test_a_count_that_is_kept_from_nothing_is_the_count(count: str, right: bool) -> None:
    text = f"""\
total = rounds = 0
for x, y in loader:
    out, y = accelerator.gather_for_metrics((model(x), y))
    total += nn.functional.cross_entropy(out, y).item()
    rounds += 1
accelerator.print(total / {count})
"""
    assert (named(text) == []) == right
