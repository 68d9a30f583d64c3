"""Loops of which the main process goes through other rounds than the rest, and numbers that samplers get."""

from __future__ import annotations

import pytest

from tests.proving.several_programs import named

TURNS = """
from tqdm import tqdm

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
model = DDP(torch.nn.Linear(4, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
{steps}
for step in steps:
    opt.zero_grad()
    model(torch.ones(2, 4)).mean().backward()
    opt.step()
"""
WRONG = [
    "steps = range(0, 100, world) if rank == 0 else range(100)",
    "steps = tqdm(range(0, 100, world)) if rank == 0 else range(100)",
    "steps = range(100)\nif rank == 0:\n    steps = range(100 // world)",
    "steps = range(50) if rank == 0 else range(100)",
    "steps = range(100 // world if rank == 0 else 100)",
    "steps = 100\nif rank == 0:\n    steps = steps // world\nsteps = range(steps)",
]
RIGHT = [
    "steps = tqdm(range(100)) if rank == 0 else range(100)",
    "steps = tqdm(range(100 // world)) if rank == 0 else range(100 // world)",
    "steps = range(0, 100)\nif rank == 0:\n    steps = tqdm(steps)",
    "steps = range(50) if len(data) > 4 else range(100)",
]


@pytest.mark.parametrize("steps", WRONG)
def test_the_others_wait_for_one_that_goes_through_fewer_rounds(steps, tmp_path):
    found = named(TURNS.format(steps=steps), tmp_path)
    assert ("ACC704", "model(torch.ones(2, 4)).mean().backward()") in found


@pytest.mark.parametrize("steps", RIGHT)
def test_as_many_rounds_on_all_are_right(steps, tmp_path):
    assert named(TURNS.format(steps=steps), tmp_path) == []


EPOCHS = """
dist.init_process_group("gloo")
rank = dist.get_rank()
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=4, sampler=sampler)
model = DDP(torch.nn.Linear(4, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
start = 3 if rank == 0 else 0
for epoch in range(3):
    sampler.set_epoch({number})
    for x, y in loader:
        opt.zero_grad()
        F.mse_loss(model(x), y).backward()
        opt.step()
"""


@pytest.mark.parametrize("number", ["epoch + rank", "epoch if rank == 0 else 2 * epoch", "start + epoch"])
def test_a_sampler_gets_one_number_on_all(number, tmp_path):
    assert named(EPOCHS.format(number=number), tmp_path) == [("ACC705", f"sampler.set_epoch({number})")]


@pytest.mark.parametrize("number", ["epoch", "epoch + 1", "100 * epoch"])
def test_whatever_number_that_is(number, tmp_path):
    assert named(EPOCHS.format(number=number), tmp_path) == []


def test_what_an_optimizer_of_the_script_writes_is_not_named_besides(tmp_path):
    own = """
class Own(torch.optim.Optimizer):
    def step(self):
        for group in self.param_groups:
            for one in group["params"]:
                state = self.state[one]
                state["mean"] = one.grad.clone()
                one.data.add_(state["mean"], alpha=-0.1)
"""
    text = own + TURNS.format(steps=WRONG[0]).replace("torch.optim.SGD", "Own").replace(", lr=0.1", ", {}")
    assert named(text, tmp_path) == [("ACC704", "model(torch.ones(2, 4)).mean().backward()")]
