"""Draws of the main process on one way of a condition, and of the others on the other one."""

from __future__ import annotations

import pytest

from tests.proving.several_programs import findings

PROGRAM = """
import random

def order(rows, shown=None):
    rows = list(rows)
    random.shuffle(rows)
    if shown is not None:
        print(rows[0])
    return rows

random.seed(7)
dist.init_process_group("gloo")
rank = dist.get_rank()
{draws}
for _ in range(10):
    if random.random() > 0.5:
        break
    dist.barrier()
"""
BOTH = {
    "a call": "if rank == 0:\n    order(range(8), shown=True)\nelse:\n    order(range(8))\n",
    "in a loop": (
        "for _ in range(3):\n    if rank == 0:\n        order(range(8), 1)\n    else:\n        order(range(8))\n"
    ),
    "the others first": "if rank != 0:\n    order(range(8))\nelse:\n    order(range(8), shown=True)\n",
}
ONE = {
    "a call": "if rank == 0:\n    order(range(8), shown=True)\n",
    "another draw": "if rank == 0:\n    order(range(8))\nelse:\n    random.random()\n",
    "one more draw": "if rank == 0:\n    order(range(8))\n    random.random()\nelse:\n    order(range(8))\n",
    "one draw of numbers before": (
        "if rank == 0:\n    random.random()\nif rank == 0:\n    order(range(8))\nelse:\n    order(range(8))\n"
    ),
}


def parts(draws, tmp_path):
    return [one.code for one in findings(PROGRAM.format(draws=draws), tmp_path) if one.code == "ACC704"]


@pytest.mark.parametrize("draws", BOTH.values(), ids=BOTH)
def test_the_same_draws_on_both_ways(draws, tmp_path):
    assert parts(draws, tmp_path) == []


@pytest.mark.parametrize("draws", ONE.values(), ids=ONE)
def test_other_draws_on_one_way(draws, tmp_path):
    assert parts(draws, tmp_path) == ["ACC704"]


LEFT = """
import time
begun = time.time()
dist.init_process_group("gloo")
rank = dist.get_rank()
model = DDP(torch.nn.Linear(4, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.1)

def train(shown):
    for step in range(10):
        opt.zero_grad()
        model(torch.ones(2, 4)).mean().backward()
        opt.step()
        if time.time() - begun > 60:
            break

for epoch in range(3):
    if rank == 0:
        train(True)
    else:
        train(False)
"""


def test_why_a_loop_is_left_in_a_function_of_both_ways(tmp_path):
    (found,) = [one for one in findings(LEFT, tmp_path) if "some ranks leave the loop" in one.message]
    assert "`time.time() - begun > 60` can be true on one rank only" in found.message
