"""Files that every process opens anew, and to which the main process alone writes."""

from __future__ import annotations

import pytest

from tests.proving.several_programs import named

OPENED = 'dist.init_process_group("gloo")\nrank = dist.get_rank()\n{}\ndist.barrier()\n'
EMPTIED = [
    'log = open("log.txt", "w")\nif rank == 0:\n    log.write("x")',
    'with open("log.txt", "w") as log:\n    if rank == 0:\n        log.write("x")',
    'with open("log.txt", "w") as log:\n    if rank == 0:\n        print("x", file=log)',
]
LEFT = [
    'if rank == 0:\n    log = open("log.txt", "w")\nif rank == 0:\n    log.write("x")',
    'log = open("log.txt", "a")\nif rank == 0:\n    log.write("x")',
    'log = open(f"log_{rank}.txt", "w")\nif rank == 0:\n    log.write("x")',
    'log = open("log.txt")\nlog.read()\nif rank == 0:\n    print("x")',
]


@pytest.mark.parametrize("text", EMPTIED)
def test_who_comes_later_empties_what_the_main_process_has_written(text, tmp_path):
    ((code, line),) = named(OPENED.format(text), tmp_path)
    assert code == "ACC702"
    assert 'open("log.txt", "w")' in line


@pytest.mark.parametrize("text", LEFT)
def test_one_that_nobody_empties_is_right(text, tmp_path):
    assert named(OPENED.format(text), tmp_path) == []


def test_one_that_all_write_to_is_named_where_they_do(tmp_path):
    text = 'log = open("log.txt", "w")\nlog.write("x")\nif rank == 0:\n    log.write("y")'
    assert named(OPENED.format(text), tmp_path) == [("ACC702", 'log.write("x")')]
