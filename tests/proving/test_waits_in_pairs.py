"""Waits of the main process and of the others that belong together, beside one to which some of them do not come."""

from __future__ import annotations

import pytest

from tests.proving.several_programs import HEAD, findings

HELPERS = """
def ready():
    return dist.is_available() and dist.is_initialized()

def rank():
    return dist.get_rank() if ready() else 0

def is_main():
    return rank() == 0

def barrier():
    if ready():
        dist.barrier()  # in the helper

dist.init_process_group("gloo")
"""
FIRST = "if not is_main():\n    {0}\nrows = list(range(3))\nif is_main():\n    {0}\n"
LOOP = "for task in range(3):\n    {leaves}\n    if is_main():\n        rows.append(task)\n    {waits}\n"
SKIPS = "if not is_main():\n        continue"


def lines_of(text, tmp_path):
    lines = (HEAD["torch"] + HELPERS + text).splitlines()
    found = [one for one in findings(HELPERS + text, tmp_path) if one.code == "ACC704"]
    return [lines[one.line - 1].strip() for one in found]


@pytest.mark.parametrize("after", ["", FIRST], ids=["before", "before and after"])
@pytest.mark.parametrize(
    ("wait", "line"),
    [("barrier()", "dist.barrier()  # in the helper"), ("dist.barrier()", "dist.barrier()  # in the loop")],
)
def test_a_wait_of_the_main_process_alone(after, wait, line, tmp_path):
    loop = LOOP.format(leaves=SKIPS, waits=f"{wait}{'  # in the loop' if wait in line else ''}")
    text = FIRST.format(wait) + loop + after.format(wait)
    assert lines_of(text, tmp_path) == [line]


@pytest.mark.parametrize("wait", ["barrier()", "dist.barrier()"])
def test_waits_that_belong_together(wait, tmp_path):
    assert not lines_of(FIRST.format(wait) + LOOP.format(leaves="pass", waits=wait), tmp_path)
