"""Functions that get some of their arguments ahead: `functools.partial`."""

from __future__ import annotations

import pytest

from tests.proving.several_programs import named

HEAD = """
from functools import partial
accelerator = Accelerator()
state = {"a": 1}
def save(accelerator, path, weights=None):
    if accelerator.is_main_process:
        torch.save(weights, path)
def save_by_all(accelerator, path, weights=None):
    torch.save(weights, path)
def run(hook):
    for epoch in range(3):
        hook(path=f"{epoch}.pt")
"""


@pytest.mark.parametrize(
    "hook",
    [
        "partial(save, accelerator=accelerator, weights=state)",
        "partial(save, accelerator, weights=state)",
        "partial(save, accelerator)",
        "partial(partial(save, accelerator=accelerator), weights=state)",
    ],
)
def test_what_it_got_ahead_is_there_when_it_is_called(hook, tmp_path):
    assert named(f"{HEAD}run({hook})\n", tmp_path, "accelerate") == []
    by_all = hook.replace("(save,", "(save_by_all,")
    found = named(f"{HEAD}run({by_all})\n", tmp_path, "accelerate")
    assert found == [("ACC702", "torch.save(weights, path)")]


def test_each_of_two_has_its_own(tmp_path):
    text = f"""{HEAD}
class Quiet:
    is_main_process = True
for one in (accelerator, Quiet()):
    run(partial(save, accelerator=one, weights=state))
run(partial(save, accelerator=accelerator))
"""
    assert named(text, tmp_path, "accelerate") == [("ACC702", "torch.save(weights, path)")]
