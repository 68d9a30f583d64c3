"""Totals that begin where there is none yet: they go on from nothing, as those that begin with zero."""

from __future__ import annotations

import pytest

from accelify.knowledge import Knowledge
from accelify.obligations import Status, validate

KNOWLEDGE = Knowledge()
TEXT = """\
import torch
from torch.utils.data import DataLoader
from accelify.runtime import Accelerator
accelerator = Accelerator()
model, loader = accelerator.prepare(torch.nn.Linear(4, 1), DataLoader(torch.load("d"), batch_size=8))
class Part:
    total = None
part, total, table = Part(), None, {{}}
for x, y in loader:
    loss = ((model(x) - y) ** 2).mean()
    value = {value}
    {body}
accelerator.print({shown})
"""
OWN, OF_ALL = "loss.item()", "accelerator.gather(loss).mean().item()"
KEYS = "for key in open('keys'):\n        {}"
WAYS = {
    "a key, by zero": ("if 'a' not in table: table['a'] = 0\n    table['a'] += value", "table['a']"),
    "a key, by a value": ("if 'a' in table: table['a'] += value\n    else: table['a'] = value", "table['a']"),
    "any key, by zero": (
        KEYS.format("if not key in table: table[key] = 0.0\n        table[key] += value"), "table['a']",
    ),
    "any key, by a value": (
        KEYS.format("if key not in table: table[key] = value\n        else: table[key] += value"), "table['a']",
    ),
    "a name": ("if total is None: total = value\n    else: total += value", "total"),
    "an attribute": ("if part.total is not None: part.total += value\n    else: part.total = value", "part.total"),
    "an expression": ("total = value if total is None else total + value", "total"),
}  # fmt: skip


def statuses(value: str, body: str, shown: str) -> list[Status]:
    found = validate(TEXT.format(value=value, body=body, shown=shown), None, KNOWLEDGE).obligations
    return [one.status for one in found if one.demand == "content"]


@pytest.mark.parametrize("way", WAYS)
def test_a_total_is_one_however_it_begins(way: str) -> None:
    body, total = WAYS[way]
    assert statuses(OF_ALL, body, f"{total} / len(loader)") == [Status.PROVED]
    assert statuses(OWN, body, f"{total} / len(loader)") == [Status.NAMED]
    assert statuses(OF_ALL, body, total) == [Status.NAMED]


@pytest.mark.parametrize(
    "body",
    [
        "if total is None: total = value",
        "if total is None or value < total: total = value",
        "if 'a' not in table: table['a'] = total = value",
        "total = value if total is None else total",
    ],
)
def test_what_is_never_added_to_is_no_total(body: str) -> None:
    for value in (OWN, OF_ALL):
        assert statuses(value, body, "total / len(loader)") != [Status.PROVED]


def test_what_a_round_began_is_there_afterwards() -> None:
    for body, there in (
        ("if total is None: total = 0", "total is not None"),
        ("if 'a' not in table: table['a'] = 0", "'a' in table"),
    ):
        shown = f"1)\nif {there}:\n    print('there'"
        found = validate(TEXT.format(value=OWN, body=body, shown=shown), None, KNOWLEDGE)
        assert [one.demand for one in found.of(Status.NAMED)] == ["once"]
