"""Loops that draw their batches themselves, one ahead, from an iterator that an object has."""

from __future__ import annotations

import pytest

from accelify.knowledge import Knowledge
from accelify.obligations import Status, validate

KNOWLEDGE = Knowledge()
HEAD = """\
import torch
from torch.utils.data import DataLoader
from accelify.runtime import Accelerator
accelerator = Accelerator()
model = accelerator.prepare(torch.nn.Linear(2, 2))
loader = accelerator.prepare(DataLoader(torch.load("d"), batch_size=6))
class Fetcher:
    def __init__(self, loader):
        self.batches = iter(loader)
        self.fetch()
    def fetch(self):
        try:
            self.x, self.y = next(self.batches)
        except StopIteration:
            self.x, self.y = None, None
            return
        self.x = self.x.cuda(non_blocking=True)
    def next(self):
        x, y = self.x, self.y
        self.fetch()
        return x, y
fetcher = Fetcher(loader)
total = count = 0
x, y = fetcher.next()
while x is not None:
    count += 1
    {body}
    x, y = fetcher.next()
"""


def status(text: str, demand: str) -> list[Status]:
    return [one.status for one in validate(text, None, KNOWLEDGE).obligations if one.demand == demand]


@pytest.mark.parametrize("loader", ["Fetcher(loader)", "Fetcher(DataLoader(torch.load('d')))"])
def test_figures_of_batches_that_an_object_fetches(loader: str) -> None:
    text = HEAD.replace("Fetcher(loader)\n", f"{loader}\n").format(body="total += model(x).sum().item()")
    shared = Status.NAMED if loader == "Fetcher(loader)" else Status.PROVED
    for shown in ("total", "total / count"):
        assert status(f"{text}accelerator.print({shown})\n", "content") == [shared]
    # A count of steps is announced with the number of steps.
    counted = Status.LOOP if shared is Status.NAMED else Status.PROVED
    assert status(f"{text}accelerator.print(count)\n", "content") == [counted]


def test_all_ranks_have_as_many_batches() -> None:
    text = HEAD.format(body="accelerator.backward((model(x) - y).mean())")
    assert status(text, "all ranks") == [Status.PROVED]
    assert status(text, "rounds") == []
    assert status(text, "loss") == [Status.PROVED]
    own = HEAD.format(body="if x.sum() < 0: break\n    accelerator.backward(model(x).mean())")
    assert Status.NAMED in status(own, "all ranks")


def test_a_value_that_is_there_on_some_ranks_alone() -> None:
    text = """
for x, y in loader:
    found = None
    if {condition}:
        found = {found}
    if found is not None:
        accelerator.backward(model(x).mean())
"""
    head = HEAD.partition("class")[0]
    for found in ("x", "x.sum()"):
        own = text.format(condition="x.sum() > 3", found=found)
        assert Status.NAMED in status(head + own, "all ranks")
        same = text.format(condition="torch.load('d')", found=found)
        assert status(head + same, "all ranks") == [Status.PROVED]
