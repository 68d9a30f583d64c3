"""What all processes do together after they have left their group raises, wherever they leave it."""

from __future__ import annotations

import pytest

from tests.proving.several_programs import findings

LEAVING = {
    "by itself": "def cleanup():\n    dist.destroy_process_group()\n",
    "where there is one": "def cleanup():\n    if dist.is_initialized():\n        dist.destroy_process_group()\n",
    "after a look": (
        "def cleanup():\n    if not dist.is_initialized():\n        return\n    dist.destroy_process_group()\n"
    ),
    "in a function that it calls": (
        "def leave():\n    dist.destroy_process_group()\n\n\n"
        "def cleanup():\n    if dist.is_available() and dist.is_initialized():\n        leave()\n"
    ),
}
STAYING = {
    "prints": 'def cleanup():\n    if dist.is_initialized():\n        print(dist.get_world_size(), "leave")\n',
    "where it is asked for": (
        "def cleanup(at_end=False):\n    if at_end:\n        dist.destroy_process_group()\n"
    ),
    "joins again": (
        "def cleanup():\n    dist.destroy_process_group()\n    dist.init_process_group('gloo')\n"
    ),
}
PROGRAM = '{}\n\ndist.init_process_group("gloo")\ncleanup()\ndist.barrier()\n'


def left(text, tmp_path):
    found = findings(PROGRAM.format(text), tmp_path)
    return [one.message for one in found if "after the processes have left their group" in one.message]


@pytest.mark.parametrize("text", LEAVING.values(), ids=LEAVING)
def test_a_barrier_after_leaving(text, tmp_path):
    assert len(left(text, tmp_path)) == 1


@pytest.mark.parametrize("text", STAYING.values(), ids=STAYING)
def test_a_barrier_in_the_group(text, tmp_path):
    assert not left(text, tmp_path)
