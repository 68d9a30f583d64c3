"""Items that go through a queue to a thread, which writes them: each process has its own, or all have the same."""

from __future__ import annotations

import pytest

from tests.proving.several_programs import named

HEAD = """
import json, queue, threading
from accelerate import PartialState
from concurrent.futures import ThreadPoolExecutor
state = PartialState()
rows = [{"name": str(number)} for number in range(60)]
todo = queue.Queue()
def write():
    while (row := todo.get()) is not None:
        with open(f"out/{row['name']}.json", "w") as file:
            json.dump(row, file)
def write_from(todo):
    while True:
        row = todo.get()
        if row is None:
            break
        with open(f"out/{row['name']}.json", "w") as file:
            json.dump(row, file)
"""
STARTED = (
    "threading.Thread(target=write, daemon=True).start()",
    "threading.Thread(target=write_from, args=(todo,)).start()",
    "pool = ThreadPoolExecutor(1); pool.submit(write_from, todo)",
)
SHARED = """
with state.split_between_processes(rows) as part:
    for row in part:
        todo.put(row)
todo.put(None)
"""
ALIKE = """
for row in rows:
    todo.put(row)
todo.put(None)
"""


@pytest.mark.parametrize("started", STARTED)
def test_items_of_each_process_are_its_own(started, tmp_path):
    assert named(f"{HEAD}{started}\n{SHARED}", tmp_path, "accelerate") == []


@pytest.mark.parametrize("started", STARTED)
def test_items_that_all_have_are_written_by_all(started, tmp_path):
    found = named(f"{HEAD}{started}\n{ALIKE}", tmp_path, "accelerate")
    assert found == [("ACC702", "json.dump(row, file)")]


def test_what_is_called_after_the_items_are_there(tmp_path):
    assert named(f"{HEAD}{SHARED}write_from(todo)\n", tmp_path, "accelerate") == []


def test_a_thread_of_the_main_process_is_its_alone(tmp_path):
    text = f"{HEAD}if state.is_main_process:\n    threading.Thread(target=write).start()\n{ALIKE}"
    assert named(text, tmp_path, "accelerate") == []
