"""The rank as the environment has it: a text, compared with others."""

from __future__ import annotations

import pytest

from tests.proving.several_programs import named

HEAD = '\nimport os\ndist.init_process_group("gloo")\n'


@pytest.mark.parametrize(
    "test",
    [
        'os.environ["RANK"] == "0"',
        'os.environ.get("LOCAL_RANK", "0") == "0"',
        'os.environ.get("LOCAL_RANK", "0") in ("0", None)',
        'not os.getenv("RANK", "0") != "0"',
        'os.environ.get("LOCAL_RANK", "-1") in ["-1", "0"]',
        'os.environ.get("WORLD_SIZE", "1") == "1"',
    ],
)
def test_what_the_main_process_alone_does_is_done_once(test, tmp_path):
    assert named(f"{HEAD}if {test}:\n    print(1)\n", tmp_path) == []


@pytest.mark.parametrize(
    "test", ['os.environ.get("HOME", "0") == "0"', 'os.environ.get("WORLD_SIZE", "1") != "1"']
)
def test_what_says_nothing_of_the_rank_is_true_for_all(test, tmp_path):
    assert named(f"{HEAD}if {test}:\n    print(1)\n", tmp_path) == [("ACC702", "print(1)")]
