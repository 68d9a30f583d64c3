"""Branches by options that nothing sets, and dictionaries under keys that only the run knows."""

from __future__ import annotations

import pytest

from accelify.knowledge import Knowledge
from accelify.obligations import Status, validate

KNOWLEDGE = Knowledge()
HEAD = """\
import argparse
import lib
import torch
from torch.utils.data import DataLoader
from accelify.runtime import Accelerator
accelerator = Accelerator()
loader = accelerator.prepare(DataLoader(torch.load("d"), batch_size=6))
names = torch.load("names")
"""
PLACES = """
class Places:
    def __init__(self, kind=None, **options):
        self.kind = kind
        self.deep = options.get("deep", False)
    def show(self):
        if {asked}:
            print("shown")
{made}.show()
"""


def status(text: str, demand: str) -> list[Status]:
    return [one.status for one in validate(HEAD + text, None, KNOWLEDGE).obligations if one.demand == demand]


@pytest.mark.parametrize(
    "asked", ["self.kind in ('fix', 'learned')", "self.kind is not None", "self.kind == 'fix'", "self.deep"]
)
def test_an_option_that_nothing_sets(asked: str) -> None:
    text = PLACES.format(asked=asked, made="Places()")
    assert status(text, "once") == []
    assert status(text.replace("Places()", "Places('fix', deep=True)"), "once") == [Status.NAMED]
    options = "Places(**vars(argparse.ArgumentParser().parse_args()))"
    assert status(text.replace("Places()", options), "once") == [Status.NAMED]


@pytest.mark.parametrize("asked", ["options.get('a')", "'a' in options", "options['b'] is not None"])
def test_what_stands_in_a_dictionary(asked: str) -> None:
    text = "options = {'b': None}\n{}\nif " + asked + ":\n    print('shown')\n"
    assert status(text.replace("{}\n", ""), "once") == []
    filled = [
        "options['a'], options['b'] = 1, 1",
        "options.update(torch.load('o'))",
        "for name in names: options[name] = torch.load(name)",
        "lib.fill(options)",
    ]
    for line in filled:
        assert status(text.replace("{}", line, 1), "once") == [Status.NAMED], line


def test_a_key_that_only_the_run_knows() -> None:
    text = "figures = {'loss': 0.0, 'rate': 0.0}\nfor x, y in loader:\n    for name in names:\n        {}\n"
    shown = "accelerator.print(figures['{}'])\n"
    assert status(text.replace("{}", "figures[name] = x.sum()") + shown.format("rate"), "content") == [
        Status.NAMED
    ]
    text = text.replace("{}", "figures[f'loss{name}'] = x.sum()")
    assert status(text + shown.format("loss"), "content") == [Status.NAMED]
    assert status(text + shown.format("rate"), "content") == [Status.PROVED]


def test_a_total_that_begins_where_a_dictionary_has_none() -> None:
    text = "totals = {}\nfor x, y in loader:\n    totals['loss'] = totals.get('loss', 0) + x.sum()\n"
    text += "accelerator.print({})\n"
    assert status(text.replace("({})", "(totals['loss'])"), "content") == [Status.NAMED]
    reduced = "(accelerator.reduce(totals['loss']))"
    assert status(text.replace("({})", reduced), "content") == [Status.PROVED]


@pytest.mark.parametrize("asked", ["y is not None", "y != None", "not y == None"])
def test_whether_a_batch_is_there_is_the_same_on_all_ranks(asked: str) -> None:
    text = f"def run(y=None):\n    if {asked}:\n        accelerator.reduce(y)\n"
    text += "for x in loader:\n    run(x)\n    run()\n"
    assert set(status(text, "all ranks")) == {Status.PROVED}
    parted = text.replace(asked, "y.sum() > 0").replace("    run()\n", "")
    assert set(status(parted, "all ranks")) == {Status.NAMED}
