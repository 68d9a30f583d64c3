"""A rank within a file that all processes write says who wrote it last; one in its name parts the files."""

from __future__ import annotations

import pytest

from tests.proving.several_programs import named

TEXT = """
import json

dist.init_process_group("gloo")
rank = dist.get_rank()
{opened}
    json.dump({{"device": str(torch.device("cuda", {number}))}}, file)
"""
ONE = 'with open("config.json", "w") as file:'


@pytest.mark.parametrize(
    ("opened", "number", "is_right"),
    [
        (ONE, "rank", False),
        (ONE, "0", False),
        ('with open(f"config{rank}.json", "w") as file:', "rank", True),
        (f"if rank == 0:\n  {ONE}", "rank", True),
    ],
)
def test_a_rank_in_a_file(opened, number, is_right, tmp_path):
    text = TEXT.format(opened=opened, number=number)
    assert ("ACC702" in dict(named(text, tmp_path))) != is_right
