"""What stands in for chance: the same numbers whatever the shape, without a draw; nothing before training begins."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import random
import numpy as np
import torch
from torch import nn
from accelify.verify.observe.quiet import PerSample, Quiet

quiet = Quiet()
quiet.install()
assert len(torch.randn(4).unique()) == 4 and len(np.random.randn(4)) == 4, "active before training"
assert random.random() != random.random()
quiet.begin()
before = torch.get_rng_state(), np.random.get_state()[1].copy(), np.random.get_state()[2]
g = torch.Generator()
x = torch.empty(2, 3, dtype=torch.float64)
for drawn, shape, value in [
    (torch.randn(2, 3), (2, 3), 0), (torch.randn((2, 3), generator=g), (2, 3), 0), (torch.rand(size=(2,)), (2,), 0.5),
    (torch.randn_like(x), (2, 3), 0), (torch.rand_like(x), (2, 3), 0.5), (torch.randint(5, (2,)), (2,), 0),
    (torch.randint(3, 5, (2,)), (2,), 3), (torch.randint(low=3, high=5, size=(2,)), (2,), 3),
    (torch.normal(torch.ones(3), torch.ones(3)), (3,), 1), (torch.normal(2.0, 1.0, (2,)), (2,), 2),
    (torch.empty(3).normal_(4, 1), (3,), 4), (torch.empty(3).uniform_(-1, 3), (3,), 1),
    (torch.empty(3).normal_(mean=4, std=1), (3,), 4), (torch.bernoulli(torch.tensor([0.2, 0.7])).sum(), (), 1),
    (torch.distributions.Normal(torch.ones(2), torch.ones(2)).rsample(), (2,), 1),
    (torch.empty(3).exponential_(2.0), (3,), 0.5),
]:
    assert tuple(drawn.shape) == shape and (drawn == value).all(), (drawn, shape, value)
assert torch.randn_like(x).dtype == torch.float64
for drawn, shape, value in [
    (np.random.normal(1, 2, (2, 3)), (2, 3), 1), (np.random.uniform(0, 4, 3), (3,), 2), (np.random.rand(2), (2,), 0.5),
    (np.random.randn(2, 1), (2, 1), 0), (np.random.randint(0, 9, 4), (4,), 0), (np.random.randint(9, size=4), (4,), 0),
]:
    assert drawn.shape == shape and (drawn == value).all(), (drawn, shape, value)
drawn = random.random(), random.uniform(1, 4), random.gauss(2, 1), random.normalvariate(mu=3, sigma=1)
assert drawn == (0.5, 2.5, 2, 3), drawn
assert len({random.randrange(10**9) for _ in range(4)}) == 4, "what is chosen stays"
assert torch.equal(before[0], torch.get_rng_state())
assert (before[1] == np.random.get_state()[1]).all() and before[2] == np.random.get_state()[2]
assert len(nn.Linear(4, 4).weight.unique()) == 16, "a model made late has weights"
order = torch.random.get_rng_state()
assert torch.randperm(9, device="cpu").tolist() == list(range(9)), "rows of a batch meet themselves"
assert torch.equal(order, torch.random.get_rng_state())
g.manual_seed(0)
assert torch.randperm(99, generator=g).tolist() != list(range(99)), "the order of the samples stays"


class Noisy:
    def __getitem__(self, index):
        drawn = torch.empty(1, dtype=torch.int64).random_(0, 10**9).item() + int(np.random.permutation(10**4)[0])
        return index + random.random() + drawn


samples = PerSample(Noisy())
first = [samples[index] for index in (3, 4, 5)]
torch.manual_seed(7)
assert [samples[index] for index in (5, 4, 3)] == first[::-1]
assert len(set(first)) == 3
"""


def test_draws_are_replaced_by_their_means() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
