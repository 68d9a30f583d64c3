"""Samplers that give each process its share of rows, which all have to have in one order."""

from __future__ import annotations

import pytest

from tests.proving.several_programs import GROUP, LOOP, NET, named

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


PADDED = """
import numpy as np
def evaluate(loader):
    model.eval()
    scores, numbers = [], []
    for x, y in loader:
        scores.append(model(x).detach().numpy())
        numbers.append(y.numpy())
    parts = [None for _ in range(dist.get_world_size())]
    dist.all_gather_object(parts, np.concatenate(scores))
    every = np.concatenate(parts)
    {line}
    return every.mean()
model = torch.nn.Linear(4, 1)
data = TensorDataset(torch.ones(61, 4), torch.ones(61, 1))
shares = DistributedSampler(data, shuffle=False{drops})
mean = evaluate(DataLoader(data, batch_size=4, {sampler}))
if dist.get_rank() == 0:
    print(mean)
"""


@pytest.mark.parametrize(
    ("sampler", "drops", "line", "is_right"),
    [
        ("sampler=shares", "", "pass", False),
        ("sampler=shares", "", "every = every[:len(data)]", True),
        (
            "sampler=shares",
            "",
            "every = every[np.unique(np.concatenate(numbers), return_index=True)[1]]",
            True,
        ),
        ("sampler=shares", ", drop_last=True", "pass", True),
        ("shuffle=False", "", "pass", True),
    ],
)
def test_samples_that_a_sampler_repeats(sampler, drops, line, is_right, tmp_path):
    text = GROUP + PADDED.format(sampler=sampler, drops=drops, line=line)
    found = [line for code, line in named(text, tmp_path) if code == "ACC713"]
    assert found == ["dist.all_gather_object(parts, np.concatenate(scores))"] * (not is_right)
