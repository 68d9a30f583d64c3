"""Batches behind `next()` or a generator that are handed out as a copy, whose parts were moved: still a loader's."""

from __future__ import annotations

import pytest

from accelify.conversion import Conversion
from accelify.convert import convert_source
from accelify.source import Source
from tests.transforms.support import PATH, codes

SCRIPT = """\
import torch
import torch.nn as nn
from torch.utils.data import DataLoader


class Trainer:
    def __init__(self, model, loader):
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.model = model.to(self.device)
        self.loader = loader
        self.batches = None
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def get_batch(self):
        {get_batch}

    def train(self, steps):
        {loop}
            self.optimizer.zero_grad()
            loss = self.model(batch["x"]).pow(2).mean()
            loss.backward()
            self.optimizer.step()


data = [{"x": torch.randn(4), "y": torch.randn(2)} for _ in range(32)]
loader = DataLoader(data, batch_size=4, shuffle=True)
Trainer(nn.Linear(4, 2), loader).train(10)
"""
STEPS = "for step in range(steps):\n    batch = self.get_batch()"
DRAW = "if self.batches is None:\n    self.batches = iter(self.loader)\nbatch = next(self.batches)\n"
COUNTED = (
    "if self.batches is None:\n    self.batches = enumerate(self.loader)\n_, batch = next(self.batches)\n"
)
COPY = "{k: v.to(self.device) for k, v in batch.items()}"


def converted(get_batch: str, loop: str = STEPS) -> Conversion:
    """The script with the body of `get_batch`, and the head of the loop that calls it."""
    text = SCRIPT.replace("{get_batch}", get_batch.replace("\n", "\n        "))
    conversion = convert_source(
        Source.from_text(text.replace("{loop}", loop.replace("\n", "\n        ")), PATH)
    )
    assert conversion.status == "converted", conversion.reason
    return conversion


@pytest.mark.parametrize("draw", [DRAW, COUNTED])
@pytest.mark.parametrize(
    "rest",
    [
        "return batch",
        f"return {COPY}",
        "return {k: batch[k].to(self.device) for k in batch}",
        "return {k: v.to(self.device) if torch.is_tensor(v) else v for k, v in batch.items()}",
        "return dict((k, v.to(self.device)) for k, v in batch.items())",
        'return dict(x=batch["x"].to(self.device))',
        "return dict(batch)",
        'return {"x": batch["x"].to(self.device)}',
        "moved = {}\nfor k, v in batch.items():\n    moved[k] = v.to(self.device)\nreturn moved",
        "return [v.to(self.device) for v in batch]",
        "return tuple(v.to(self.device) for v in batch.values())",
    ],
)
def test_the_loader_of_a_copy_is_prepared(draw: str, rest: str) -> None:
    conversion = converted(draw + rest)
    assert "loader = accelerator.prepare(loader)" in conversion.new_text
    assert "ACC402" not in codes(conversion)


@pytest.mark.parametrize(
    "loop",
    [
        "for batch in self.get_batch():",
        "for step, batch in enumerate(self.get_batch()):",
        "source = self.get_batch()\nfor step in range(steps):\n    batch = next(source)",
    ],
)
def test_so_is_that_of_a_generator(loop: str) -> None:
    conversion = converted(f"for batch in self.loader:\n    yield {COPY}", loop)
    assert "loader = accelerator.prepare(loader)" in conversion.new_text
    assert "ACC402" not in codes(conversion)


def test_what_is_made_of_no_batch_is_not() -> None:
    drawn = 'return {k: v.to(self.device) for k, v in {"x": torch.randn(8, 4)}.items()}'
    conversion = converted(drawn)
    assert "accelerator.prepare(loader)" not in conversion.new_text
    assert "ACC402" in codes(conversion)
