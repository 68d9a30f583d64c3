"""Attributes that some processes alone set, and that all of them use."""

from __future__ import annotations

import pytest

from tests.proving.several_programs import named

TEXT = """
class {cls}:
    def __init__(self, model):
        self.accelerator = Accelerator()
        self.model = self.accelerator.prepare(model)
        {made}

    def train(self):
        {used}


Trainer(torch.nn.Linear(4, 1)).train()
"""
MADE = "self.mean = torch.optim.swa_utils.AveragedModel(model)"
MAIN = "if self.accelerator.is_main_process:\n            "
USED = "self.mean.update_parameters(self.model)"


@pytest.mark.parametrize(
    ("made", "used", "line"),
    [
        (MAIN + MADE, USED, USED),
        (MADE, USED, ""),
        (f"self.mean = None\n        {MAIN}{MADE}", "print(self.mean, file=None)", ""),
        (f"{MAIN}{MADE}\n        else:\n            self.mean = None", "left = self.mean", ""),
        (MAIN + MADE, MAIN + USED, ""),
        (MAIN + MADE, f"if hasattr(self, 'mean'):\n            {USED}", ""),
        (MAIN + MADE, "left = getattr(self, 'mean', None)", ""),
        (MAIN + MADE, "self.mean = 1\n        left = self.mean", ""),
    ],
)
def test_an_attribute_that_the_main_process_sets(made, used, line, tmp_path):
    found = named(TEXT.format(cls="Trainer", made=made, used=used), tmp_path, "accelerate")
    assert [line for code, line in found if code == "ACC704"] == ([line] if line else [])


def test_an_attribute_that_a_library_may_give(tmp_path):
    """A base of which nothing is known may have one of that name."""
    text = TEXT.format(cls="Trainer(Base)", made=MAIN + MADE, used=USED)
    assert named("from base import Base\n" + text, tmp_path, "accelerate") == []
