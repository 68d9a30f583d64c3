"""Calls of one of several functions or classes: those count that take the arguments."""

from __future__ import annotations

import pytest

from tests.proving.several_programs import named

TRAINED = """
import sys
accelerator = Accelerator()
class Old:
    def __init__(self, {parameters}):
        self.model = model
    def train(self):
        print("old")
class New:
    def __init__(self, model, loader=None):
        self.model, self.loader = accelerator.prepare(model, loader)
    def train(self):
        for x, y in self.loader:
            accelerator.backward(self.model(x).mean())
KINDS = {{"old": Old, "new": New}}
KINDS[sys.argv[1]](torch.nn.Linear(4, 1), loader=DataLoader(data, batch_size=4)).train()
"""


@pytest.mark.parametrize(
    ("parameters", "fits"),
    [
        ("model, device", False),
        ("model, loader, device", False),
        ("model, *, loader, device", False),
        ("loader", False),
        ("model, loader", True),
        ("model, device=None, **more", True),
        ("*models, loader", True),
    ],
)
def test_a_class_that_does_not_take_the_arguments_is_not_the_one(parameters, fits, tmp_path):
    text = TRAINED.format(parameters=parameters)
    assert named(text, tmp_path, "accelerate") == [("ACC702", 'print("old")')] * fits
