"""Samplers that give each process its share of rows, which all have to have in one order."""

from __future__ import annotations

import pytest

from tests.proving.several_programs import LOOP, NET, named

SAMPLER = """
import random


class Share(Sampler):
    def __init__(self, count, rank, size):
        order = list(range(count))
        {shuffle}
        chunks = [order[first : first + 4] for first in range(0, count, 4)]
        self.chunks = chunks[rank::size]

    def __iter__(self):
        return iter(self.chunks)

    def __len__(self):
        return len(self.chunks)


dist.init_process_group("gloo")
{seed}
loader = DataLoader(data, batch_sampler=Share(60, dist.get_rank(), dist.get_world_size()))
"""


@pytest.mark.parametrize(
    ("shuffle", "seed"),
    [("pass", ""), ("random.shuffle(order)", "random.seed(7)"), ("random.Random(7).shuffle(order)", "")],
)
def test_shares_of_one_order(shuffle, seed, tmp_path):
    assert named(SAMPLER.format(shuffle=shuffle, seed=seed) + NET + LOOP, tmp_path) == []


@pytest.mark.parametrize("seed", ["", "random.seed(dist.get_rank())"])
def test_shares_of_an_order_that_each_process_draws(seed, tmp_path):
    text = SAMPLER.format(shuffle="random.shuffle(order)", seed=seed) + NET + LOOP
    assert named(text, tmp_path) == [("ACC705", "random.shuffle(order)")]
