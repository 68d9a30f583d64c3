"""What a training loop shows as it goes on of what the methods that it calls collect."""

from __future__ import annotations

import pytest

from tests.transforms.support import convert, names_figures

TRAINER = """
class Trainer:
    def __init__(self):
        self.losses = {{"far": [], "near": []}}
    def step(self, x, y):
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        self.losses["near"].append(loss.item())
    def through(self, x, y):
        self.step(x, y)
    def epoch(self):
        for i, (x, y) in enumerate(loader):
            {called}(x, y)
            {inside}
        {behind}
trainer = Trainer()
"""
SHOWN = 'print(self.losses["near"][-1])'


@pytest.mark.parametrize(
    ("called", "inside", "behind", "named"),
    [
        ("self.step", f"if i % 2 == 0: {SHOWN}", "pass", False),
        ("self.through", f"if i % 2 == 0: {SHOWN}", "pass", False),
        ("self.step", "pass", 'print(sum(self.losses["near"]))', True),
        ("self.step", SHOWN, 'print(sum(self.losses["near"]))', True),
    ],
)
def test_the_progress_of_a_loop(called: str, inside: str, behind: str, named: bool) -> None:
    ready = TRAINER.format(called=called, inside=inside, behind=behind)
    conversion = convert(ready=ready, epoch="trainer.epoch()")
    assert names_figures(conversion) is named
