"""Loops that take a number of batches by hand."""

from __future__ import annotations

import pytest

from accelify.conversion import Conversion, ConvertOptions
from accelify.convert import convert_source
from accelify.source import Source
from tests.transforms import support

SCRIPT = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

data = TensorDataset(torch.randn(32, 3))
loader = DataLoader(data, batch_size=4)
model = nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
{before}
for epoch in range(3):
    batches = iter(loader)
    {loop}:
        {take}
        loss = model(x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    {after}
"""
FOR = "for step in range(len(data) // 4)"
TAKE = "(x,) = next(batches)"
CAUGHT = """try:
            (x,) = next(batches)
        except StopIteration:
            break"""
ANEW = """batches = iter(loader)
        (x,) = next(batches)"""


def convert(
    loop: str, take: str = TAKE, *, before: str = "", after: str = "", batch_size: str = "per-process"
) -> Conversion:
    text = SCRIPT.format(loop=loop, take=take, before=before, after=after)
    conversion = convert_source(Source.from_text(text), ConvertOptions(batch_size=batch_size))
    assert conversion.status == "converted", conversion.reason
    return conversion


@pytest.mark.parametrize("take", [TAKE, "(x,) = batches.next()", "(x,) = batches.__next__()"])
@pytest.mark.parametrize("number", ["len(data) // 4", "8"])
@pytest.mark.parametrize("start", ["", "0, "])
def test_no_more_rounds_than_batches(start: str, number: str, take: str) -> None:
    conversion = convert(f"for step in range({start}{number})", take)
    assert f"for step in range({start}min({number}, len(loader))):" in conversion.new_text


@pytest.mark.parametrize(
    ("loop", "take"),
    [
        ("for step in range(len(loader))", TAKE),
        ("for step in range(len(loader) - 1)", TAKE),
        (FOR, CAUGHT),
        (FOR, ANEW),
        (FOR, "(x,) = next(batches, (data[0][0],))"),
    ],
)
def test_what_ends_with_the_batches_stays(loop: str, take: str) -> None:
    conversion = convert(loop, take)
    assert f"    {loop}:\n" in conversion.new_text
    assert "ACC412" not in {f.code for f in conversion.remaining}


def test_batches_that_are_shared_out_among_the_processes_are_as_many_as_before() -> None:
    assert f"    {FOR}:\n" in convert(FOR, batch_size="total").new_text


def test_a_number_that_figures_are_divided_by_is_left_to_a_person() -> None:
    conversion = convert("for step in range(steps)", before="steps = 8", after="print(loss.item() / steps)")
    assert "    # TODO(accelify ACC706): " in conversion.new_text


def test_rounds_that_are_counted_from_a_start_are_left_to_a_person() -> None:
    conversion = convert("for step in range(begun, 8)", before="begun = 2")
    assert "for step in range(begun, 8):" in conversion.new_text
    assert "    # TODO(accelify ACC706): " in conversion.new_text


def test_rounds_of_a_while_loop_are_left_to_a_person() -> None:
    conversion = convert("while step < 8", "step += 1; (x,) = next(batches)", before="step = 0")
    assert "    # TODO(accelify ACC706): " in conversion.new_text


def test_accumulation_takes_its_batches_as_before() -> None:
    """Only the loop around it comes to the end of the iterator too soon."""
    take = "\n        for part in range(2):\n            (x,) = next(batches)"
    conversion = convert("for step in range(4)", take)
    assert "for part in range(2):" in conversion.new_text
    assert "    # TODO(accelify ACC706): " in conversion.new_text


WHOLE = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

data = TensorDataset(torch.randn(30, 3))
batch_size = 4
loader = DataLoader(data, batch_size=batch_size)
model = nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
real = torch.ones(batch_size, 1)
for epoch in range(3):
    for i, (x,) in enumerate(loader):
        if i == {bound}:
            {end}
        noise = torch.rand(batch_size, 3)
        loss = (model(x + noise) - real).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


def converted_whole(bound: str, end: str = "break", batch_size: str = "per-process") -> Conversion:
    text = WHOLE.format(bound=bound, end=end)
    return convert_source(Source.from_text(text), ConvertOptions(batch_size=batch_size))


@pytest.mark.parametrize(
    "bound",
    [
        "len(data) // batch_size",
        "loader.dataset.__len__() // batch_size",
        "len(loader.dataset) // batch_size",
    ],
)
def test_an_epoch_that_leaves_its_last_batch_out(bound: str) -> None:
    """Each process comes to its share of the whole batches, of which all have the configured size."""
    conversion = converted_whole(bound)
    assert f"if i == {bound} // accelerator.num_processes:" in conversion.new_text
    assert "ACC404" not in {f.code for f in [*conversion.remaining, *conversion.applied]}
    assert "num_processes" not in converted_whole(bound, batch_size="total").new_text


@pytest.mark.parametrize(("bound", "end"), [("100", "break"), ("len(data) // batch_size", "print(i)")])
def test_other_ends_stay(bound: str, end: str) -> None:
    conversion = converted_whole(bound, end)
    found = {f.code for f in [*conversion.remaining, *conversion.applied]}
    assert "ACC404" in found
    assert "ACC412" not in found


KEPT = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Trainer:
    def __init__(self, loader, model):
        self.loader = loader
        {first}
        {second}

    def train(self):
        optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        batches = iter(self.loader)
        step = 0
        while step < self.rounds:
            x, y = next(batches)
            optimizer.zero_grad()
            (self.model(x) - y).pow(2).mean().backward()
            optimizer.step()
            step += 1


if __name__ == "__main__":
    data = TensorDataset(torch.randn(40, 4), torch.randn(40, 1))
    loader = DataLoader(data, batch_size=4, shuffle=True)
    Trainer(loader, nn.Linear(4, 1)).train()
"""
MODEL = "self.model = model"


@pytest.mark.parametrize("number", ["len(self.loader)", "8"])
@pytest.mark.parametrize("late", [True, False])
def test_a_length_that_a_constructor_keeps_is_taken_behind_prepare(number: str, late: bool) -> None:
    kept = f"self.rounds = {number}"
    first, second = (MODEL, kept) if late else (kept, MODEL)
    conversion = convert_source(Source.from_text(KEPT.format(first=first, second=second)))
    assert "    loader = accelerator.prepare(loader)\n    Trainer(accelerator, loader," in conversion.new_text
    said = {f.code for f in conversion.remaining} & {"ACC401", "ACC412"}
    assert said == (set() if "len" in number else {"ACC412"})


STREAM = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset
from remote import RemoteIterableDataset, load_dataset


class Stream(IterableDataset):
    def __iter__(self):
        while True:
            yield torch.randn(3)


class Counted(Stream):
    def __len__(self):
        return 100



model = nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader({data}, batch_size=4)
other = DataLoader(TensorDataset(torch.randn(32, 3)), batch_size=4)
batches = iter(loader)
for step in range(7):
    loss = model(next(batches)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
batches = iter(other)
"""


@pytest.mark.parametrize(
    ("data", "counted"),
    [
        ("Stream()", False),
        ("Counted()", True),
        ("RemoteIterableDataset('tcp')", False),
        ("load_dataset('texts', streaming=True)", False),
        ("load_dataset('texts')", True),
    ],
)
def test_a_stream_is_not_asked_for_its_length(data: str, counted: bool) -> None:
    conversion = convert_source(Source.from_text(STREAM.format(data=data), support.PATH), ConvertOptions())
    assert ("range(min(7, len(loader)))" in conversion.new_text) is counted
    assert "len(other)" not in conversion.new_text
    assert ("ACC412" in {f.code for f in conversion.remaining}) is not counted


TAKES = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

model = nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(torch.randn(32, 3)), batch_size=4)
batches = iter(loader)
for step in range(3):
    (x,) = next(batches)
    optimizer.zero_grad()
    model(x).pow(2).mean().backward()
    optimizer.step()
    {more}
"""


@pytest.mark.parametrize(
    ("more", "most"),
    [
        ("step += 1", "len(loader)"),
        ("(z,) = next(batches)", "len(loader) // 2"),
        ("print(next(batches)); print(next(batches))", "len(loader) // 3"),
        ("for _ in range(2):\n        next(batches)", ""),
        ("if step % 2:\n        next(batches)", ""),
    ],
)
def test_every_batch_that_a_round_takes_counts(more: str, most: str) -> None:
    conversion = convert_source(Source.from_text(TAKES.format(more=more), support.PATH), ConvertOptions())
    assert (f"for step in range(min(3, {most})):" in conversion.new_text) is bool(most)
    assert ("ACC412" in {f.code for f in conversion.remaining}) is (most == "")
