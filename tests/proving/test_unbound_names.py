"""Names that some processes alone bind, and that all of them use."""

from __future__ import annotations

import pytest

from tests.proving.several_programs import named

TEXT = """
def prepare(path):
    note(path)
    return torch.nn.Linear(4, 1)


def silent(text):
    pass


def main():
    global note
    dist.init_process_group("gloo")
    BOUND
    DDP(prepare("w.pt"))


main()
"""
MAIN = "if dist.get_rank() == 0:\n        note = Path.touch"


@pytest.mark.parametrize(
    ("bound", "used"),
    [
        (MAIN, "note(path)"),
        (f"{MAIN}\n    left = note", "left = note"),
        ("if dist.get_rank() > 0:\n        return\n    note = silent", ""),
        (f"{MAIN}\n    else:\n        note = silent", ""),
        (f"note = silent\n    {MAIN}", ""),
        (f"{MAIN}\n    note = silent", ""),
    ],
)
def test_a_name_that_the_main_process_binds(bound, used, tmp_path):
    found = named(TEXT.replace("BOUND", bound), tmp_path)
    assert [line for code, line in found if code == "ACC704"] == ([used] if used else [])


def test_a_name_that_the_main_process_alone_uses(tmp_path):
    text = TEXT.replace("BOUND", MAIN).replace(
        "    note(path)", "    if dist.get_rank() == 0:\n        note(path)"
    )
    assert named(text, tmp_path) == []


ENDS = """
dist.init_process_group("gloo")
model = DDP(torch.nn.Linear(4, 1))
BEFORE
print("resumed")
"""


@pytest.mark.parametrize(
    ("before", "is_reached"),
    [
        ("untested  # weights of all ranks first", False),
        ("untested = 1\nuntested", True),
        ("from unread import *\nuntested", True),
        ("try:\n    untested\nexcept NameError:\n    pass", True),
    ],
)
def test_a_line_that_ends_a_script_with_a_name(before, is_reached, tmp_path):
    found = named(ENDS.replace("BEFORE", before), tmp_path)
    assert found == ([("ACC702", 'print("resumed")')] if is_reached else [])


@pytest.mark.parametrize(("test", "is_reached"), [("len(words) and 0", False), ("len(words) and 1", True)])
def test_a_condition_that_is_never_true(test, is_reached, tmp_path):
    text = f"dist.init_process_group('gloo')\nwords = open('a.txt').read()\nif {test}:\n    print(words)\n"
    assert named(text, tmp_path) == ([("ACC702", "print(words)")] if is_reached else [])
