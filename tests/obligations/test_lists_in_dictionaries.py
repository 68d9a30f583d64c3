"""Dictionaries that a loop fills where a key is not there yet: what they hold after it, and what decides their keys."""

from __future__ import annotations

import pytest

from accelify.knowledge import Knowledge
from accelify.obligations import Obligation, Status, validate

KNOWLEDGE = Knowledge()
FRAME = """\
import torch
from torch import nn
from torch.utils.data import DataLoader
from accelify.runtime import Accelerator
accelerator = Accelerator()
model, loader = accelerator.prepare(nn.Linear(4, 1), DataLoader(torch.load("d"), batch_size=8))
class Book:
    lines = None
    def __init__(self):
        self.rows = {{}}
    def note(self, key, value):
        {note}
    def of(self, key):
        return self.rows[key]
book, many = Book(), []
for x, y in loader:
    loss = nn.functional.mse_loss(model(x), y)
    accelerator.backward(loss)
    {before}
    book.note("loss", value)
{after}
"""
OWN, OF_ALL = "value = loss.item()", "value = accelerator.gather(loss).mean().item()"
AFTER = 'shown = book.of("loss")\naccelerator.print(shown)'
NOTES = {
    "asked for": "if key not in self.rows:\n            self.rows[key] = []\n        self.rows[key].append(value)",
    "set by default": "self.rows.setdefault(key, []).append(value)",
    "caught": "try:\n            self.rows[key]\n        except NameError:\n            self.rows[key] = []\n"
    "        self.rows[key].append(value)",
    "none yet": "if self.lines is None:\n            self.lines = []\n"
    "        self.lines.append(value)\n        self.rows[key] = self.lines",
}


def named(note: str, before: str, after: str) -> list[Obligation]:
    checked = validate(FRAME.format(note=note, before=before, after=after), None, KNOWLEDGE)
    assert not checked.unread
    return [one for one in checked.of(Status.NAMED) if one.demand == "content"]


@pytest.mark.parametrize("note", NOTES.values(), ids=NOTES)
def test_a_list_holds_the_rounds_of_a_process(note: str) -> None:
    (one,) = named(note, OWN, AFTER)
    assert one.found == "printed: of the main process's share of the rows"


def test_a_list_that_each_round_makes_holds_its_value_alone() -> None:
    assert named("self.rows[key] = []\n        self.rows[key].append(value)", OWN, AFTER) == []


@pytest.mark.parametrize("note", NOTES.values(), ids=NOTES)
def test_what_stands_in_a_dictionary_decides_no_key(note: str) -> None:
    assert named(note, OWN, 'if "loss" in book.rows:\n    accelerator.print("there")') == []


@pytest.mark.parametrize(
    "before",
    [
        "value = 0\n    if loss > 3:\n        book.rows['high'] = 1",
        "value = 0\n    book.rows[str(loss.item())] = 1",
        "value = 0\n    book.rows[y.sum().item()] = 1",
    ],
    ids=["by a condition", "by a text", "by a number"],
)
def test_keys_of_a_share(before: str) -> None:
    (one,) = named("pass", before, 'if "high" in book.rows:\n    accelerator.print("there")')
    assert one.found == "printed where not all ranks come"


def test_lists_under_keys_of_which_nothing_is_known() -> None:
    names = "for name in open('names'):\n        book.note(name, loss.item())\n    value = 0"
    (one,) = named(NOTES["asked for"], names, 'accelerator.print(book.of("a"))')
    assert one.found == "printed: of the main process's share of the rows"


def test_a_dictionary_that_some_rounds_put_into_a_list_is_one_of_many() -> None:
    made = f"{OWN}\n    if len(many) % 2:\n        one = {{'loss': value}}\n        many.append(one)"
    shown = "mean = sum(one['loss'] for one in many) / len(many)\naccelerator.print(mean)"
    (one,) = named("pass", made, shown)
    assert "as the round before left it" not in one.message


METER = """
class Meter:
    def __init__(self):
        self.total = self.count = 0
    def see(self, value):
        self.total += value
        self.count += 1
"""


def test_objects_that_are_made_where_there_is_none_yet_add_up() -> None:
    frame = FRAME.replace("class Book", f"{METER}class Book")
    note = "if key not in self.rows:\n            self.rows[key] = Meter()\n        self.rows[key].see(value)"
    shown = 'accelerator.print(book.of("loss").total / book.of("loss").count)'
    each = "self.rows[key] = Meter()\n        self.rows[key].see(value)"
    for how, before, expected in (
        (note, OF_ALL, Status.PROVED),
        (note, OWN, Status.NAMED),
        (each, OWN, Status.LOOP),
    ):
        checked = validate(frame.format(note=how, before=before, after=shown), None, KNOWLEDGE)
        assert [one.status for one in checked.obligations if one.demand == "content"] == [expected]
