"""Loaders whose batches are drawn one by one, in the function that makes a step or by a class that keeps them."""

from __future__ import annotations

from pathlib import Path

from accelify.conversion import Conversion
from accelify.convert import convert_source
from accelify.source import Source

HEAD = """\
import torch
from torch.utils.data import DataLoader
from shapes import Net, data
"""
STEP = """
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(data, batch_size=8)


def step():
    x, y = next(stream)
    cost = torch.nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    cost.backward()
    optimizer.step()


for epoch in range(3):
    stream = iter(loader)
    for _ in range(len(loader)):
        step()
"""
KEEPER = """

class Endless:
    def __init__(self, data):
        self.loader = DataLoader(data, batch_size=8)
        self.stream = iter(self.loader)

    def next(self):
        try:
            batch = next(self.stream)
        except StopIteration:
            self.stream = iter(self.loader)
            batch = next(self.stream)
        return batch


model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
batches = Endless(data)
for _ in range(10):
    x, y = batches.next()
    loss = torch.nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
ENGINE = """
from engines import Engine

model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(data, batch_size=8)


def step(engine, batch):
    x, y = batch
    loss = torch.nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


Engine(step).run(loader, max_epochs=3)
"""


def converted(text: str) -> Conversion:
    found = convert_source(Source.from_text(HEAD + text, Path("/nowhere/train.py")))
    assert found.status == "converted", found.reason
    return found


def test_a_batch_drawn_in_the_function_of_a_step() -> None:
    found = converted(STEP)
    assert "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)" in found.new_text
    assert not found.remaining


def test_a_batch_that_a_class_draws_from_its_own_loader() -> None:
    found = converted(KEEPER)
    assert "self.loader = accelerator.prepare(self.loader)" in found.new_text
    assert found.new_text.index("prepare(self.loader)") < found.new_text.index("self.stream = iter")
    assert not found.remaining


def test_a_loader_that_goes_to_an_engine_is_called_one() -> None:
    found = converted(ENGINE)
    message = next(f.message for f in found.remaining if f.code == "ACC402")
    assert "`loader` is handed to `Engine(step).run`" in message
    assert "not seen to come from" not in message
