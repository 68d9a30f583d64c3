"""What the main process alone has, and the others have None in its place: a question for it is one for the process."""

from __future__ import annotations

import textwrap

import pytest

from accelify.knowledge import Knowledge
from accelify.obligations import Status, validate

KNOWLEDGE = Knowledge()
HEAD = """\
import os
from torch.utils.tensorboard import SummaryWriter
from accelify.runtime import Accelerator
accelerator = Accelerator()
"""
CHOSEN = "writer = SummaryWriter('a') if accelerator.is_main_process else None\n"
SET = "writer = None\nif accelerator.is_main_process:\n    writer = SummaryWriter('a')\n"
WANTED = f"writer = None\nif os.environ.get('LOG'):\n    {CHOSEN}"
OF_ALL = "writer = SummaryWriter('a') if os.environ.get('LOG') else None\n"


def by_all(body: str) -> list[str]:
    found = validate(f"{HEAD}{body}", None, KNOWLEDGE).of(Status.NAMED)
    return [one.sink for one in found if one.demand == "once" and one.sink != "tracker.start"]


@pytest.mark.parametrize("test", ["writer", "writer is not None", "writer != None", "writer and True"])
def test_what_it_leads_to_is_done_once(test: str) -> None:
    use = f"def log(writer, value):\n    if {test}:\n        writer.add_scalar('a', value)\n\n\nlog(writer, 1)\n"
    for made in (CHOSEN, SET, WANTED):
        assert by_all(made + use) == []
    assert by_all(OF_ALL + use) == ["tracker.log"]


@pytest.mark.parametrize("test", ["not writer", "writer is None"])
def test_the_others_leave_early(test: str) -> None:
    use = f"def log(writer):\n    if {test}:\n        return\n    print('logged')\n\n\nlog(writer)\n"
    assert by_all(SET + use) == []
    assert by_all(OF_ALL + use) == ["terminal.write"]
    assert by_all(f"{SET}if {test}:\n    print('none')\n") == ["terminal.write"]


def test_one_that_all_have_instead() -> None:
    use = "if os.environ.get('ALL'):\n    writer = SummaryWriter('b')\nif writer:\n    print('a')\n"
    assert by_all(SET + use) == ["terminal.write"]


@pytest.mark.parametrize(
    ("start", "sinks"),
    [
        ("if accelerator.is_main_process:\n    wandb.init(project='a')\n", []),
        ("wandb.init(project='a')\n", ["tracker.log", "tracker.log", "terminal.write"]),
    ],
)
def test_the_run_of_a_library(start: str, sinks: list[str]) -> None:
    body = "    wandb.log({'a': 1})\n    wandb.run.log({'a': 1})\n    print('logged')\n"
    use = f"def log():\n    if wandb.run is not None:\n{textwrap.indent(body, '    ')}\n\nlog()\n"
    assert by_all(f"import wandb\n{start}{use}") == sinks


@pytest.mark.parametrize("given", ["download=accelerator.is_main_process", "transform=total"])
def test_data_that_one_process_fetches_are_the_same_on_all(given: str) -> None:
    text = (
        "import torch, torchvision\nfrom torch.utils.data import DataLoader\n"
        "total = 0.0\nfor x in accelerator.prepare(DataLoader(torch.load('a'), batch_size=4)):\n    total = x.sum()\n"
        f"data = torchvision.datasets.MNIST('d', {given})\n"
        "for x in accelerator.prepare(DataLoader(data, batch_size=4)):\n    pass\n"
    )
    found = validate(HEAD + text, None, KNOWLEDGE).of(Status.NAMED)
    assert any("data or order are others on each" in one.found for one in found) == ("total" in given)
