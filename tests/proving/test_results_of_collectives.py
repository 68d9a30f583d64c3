"""Collectives of torch.distributed write to what they get, and give nothing."""

from __future__ import annotations

import pytest

from tests.proving.several_programs import named

HEAD = """
dist.init_process_group("gloo")
parts = [torch.ones(3) for number in range(4)]
"""


@pytest.mark.parametrize(
    "line",
    [
        "means = [dist.all_reduce(part.clone()) for part in parts]",
        "total = dist.all_reduce(parts[0].clone()) * 2",
        "total = dist.broadcast(parts[0], src=0)",
    ],
)
def test_a_result_that_is_used_is_named(line, tmp_path):
    assert named(f"{HEAD}{line}\n", tmp_path) == [("ACC701", line)]


@pytest.mark.parametrize(
    "line",
    [
        "dist.all_reduce(parts[0])",
        "work = dist.all_reduce(parts[0], async_op=True); work.wait()",
        "[dist.all_reduce(part) for part in parts]",
        "reduce = lambda part: dist.all_reduce(part); reduce(parts[0])",
        "[dist.all_reduce(part, async_op=True).wait() for part in parts]",
    ],
)
def test_one_that_is_not_is_quiet(line, tmp_path):
    assert named(f"{HEAD}{line}\n", tmp_path) == []
