"""A file that is read, extended and written again: nobody writes it before all have read it."""

from __future__ import annotations

import pytest

from tests.transforms.support import convert

WAIT = "accelerator.wait_for_everyone()\n    if accelerator.is_main_process:\n"
SETUP = """\
import json
import pandas as pd

def rows(path):
    with open(path) as file:
        return json.load(file)
"""


@pytest.mark.parametrize(
    ("read", "write"),
    [
        (
            'rows = json.load(open("t.json")) if os.path.exists("t.json") else []',
            'json.dump(rows, open("t.json", "w"))',
        ),
        (
            'with open("t.json") as file:\n    old = file.read()',
            'with open("t.json", "w") as file:\n    file.write(old)',
        ),
        ('table = pd.read_csv("t.csv")\ntable["a"] = epoch', 'table.to_csv("t.csv")'),
        ('old = rows("t.json")\nold.append(epoch)', 'json.dump(old, open("t.json", "w"))'),
    ],
)
def test_all_have_read_it_before_it_is_written(read: str, write: str) -> None:
    text = convert(setup=SETUP, epoch=f"{read}\n{write}").new_text
    assert WAIT in text


@pytest.mark.parametrize(
    "lines",
    [
        'old = json.load(open("a.json"))\njson.dump(old, open("b.json", "w"))',
        'old = [epoch]\njson.dump(old, open("t.json", "w"))',
    ],
)
def test_nobody_waits_for_what_is_not_read(lines: str) -> None:
    assert "wait_for_everyone" not in convert(setup=SETUP, epoch=lines).new_text


def test_nobody_waits_where_the_training_is_between() -> None:
    text = convert(
        setup=SETUP, ready='old = json.load(open("t.json"))', end='json.dump(old, open("t.json", "w"))'
    ).new_text
    assert "wait_for_everyone" not in text
