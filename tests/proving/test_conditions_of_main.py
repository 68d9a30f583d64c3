"""Conditions on what the main process alone has are named where all have to meet, with what made it so."""

from __future__ import annotations

import pytest

from tests.proving.several_programs import findings

GROUP = """
dist.init_process_group("gloo")
rank = dist.get_rank()
"""
PARTED = {
    "a number": ("best = None\nif rank == 0:\n    best = 3.5\n", "best is not None"),
    "a text": ('path = None\nif rank == 0:\n    path = "runs/1"\n', "path"),
    "a file": (
        'best = None\nif rank == 0:\n    best = torch.load("best.pt", map_location="cpu")\n',
        "best is not None and best > 0.5",
    ),
    "a list that is appended to": ('names = []\nif rank == 0:\n    names.append("x")\n', "names"),
    "how long a list is": ('names = []\nif rank == 0:\n    names.append("x")\n', "len(names) > 0"),
    "an attribute that the class has": (
        "class State:\n    best = None\n\n\nstate = State()\nif rank == 0:\n    state.best = 3\n",
        "state.best is not None",
    ),
    "what another branch leaves out": (
        'if rank == 0:\n    log = open("log.txt", "w")\nelse:\n    log = None\n',
        "log",
    ),
    "what a conditional expression leaves out": (
        'log = open("log.txt", "w") if rank == 0 else None\n',
        "log",
    ),
}
ALIKE = {
    "sent to all": (
        "best = [None]\nif rank == 0:\n    best = [3.5]\ndist.broadcast_object_list(best, src=0)\n",
        "best[0] is not None",
    ),
    "a list of all": ('names = []\nnames.append("x")\nif rank == 0:\n    print(names)\n', "len(names) > 0"),
    "an attribute that all set": (
        "class State:\n    best = None\n\n\nstate = State()\nstate.best = 3\nif rank == 0:\n    print(state.best)\n",
        "state.best is not None",
    ),
}


def deadlocks(text, test, tmp_path):
    found = findings(f"{GROUP}{text}if {test}:\n    dist.barrier()\n", tmp_path)
    return [one.message for one in found if one.code == "ACC704"]


@pytest.mark.parametrize(("text", "test"), PARTED.values(), ids=PARTED)
def test_barriers_under_what_main_has(text, test, tmp_path):
    found = deadlocks(text, test, tmp_path)
    assert len(found) == 1
    assert "from `rank == 0`" in found[0]


@pytest.mark.parametrize(("text", "test"), ALIKE.values(), ids=ALIKE)
def test_barriers_under_what_all_have(text, test, tmp_path):
    assert not deadlocks(text, test, tmp_path)
