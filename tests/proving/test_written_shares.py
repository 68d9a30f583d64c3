"""Files with what each process has of the items that the processes share out among them."""

from __future__ import annotations

import pytest

from tests.proving.several_programs import findings, named

SHARES = """
import json
from accelerate import PartialState
state = PartialState()
with state.split_between_processes(list("abcdef")) as part:
    for number, item in enumerate(part):
        with open({name}, "w") as file:
            json.dump({{"item": item}}, file)
"""


@pytest.mark.parametrize("name", ['f"out/{state.process_index}_{number}.json"', 'f"out/{item}.json"'])
def test_each_process_under_names_of_its_own_items(name, tmp_path):
    assert named(SHARES.format(name=name), tmp_path, "accelerate") == []


def test_all_processes_under_the_same_names(tmp_path):
    found = findings(SHARES.format(name='f"out/{number}.json"'), tmp_path, "accelerate")
    assert [one.code for one in found] == ["ACC702"]
    assert "put the rank into its name" in found[0].message
