"""Objects of a script's own that are used as its optimizer: no schedulers, and what they keep is prepared."""

import pytest
import torch
from torch import nn

from accelify.runtime import AcceleratedOptimizer, AcceleratedScheduler, Accelerator


class Answering:
    """Answers for the optimizer that it keeps, and None for what nobody knows."""

    def __init__(self, optimizer):
        self.retained, self.steps = optimizer, 0

    def step(self):
        self.steps += 1
        self.retained.step()

    def zero_grad(self):
        self.retained.zero_grad()

    def __getattr__(self, name):
        return getattr(self.retained, name, None)


class Named:
    def __init__(self, optimizer):
        self.optimizer = optimizer

    def step(self):
        self.optimizer.step()

    def zero_grad(self):
        self.optimizer.zero_grad()

    def state_dict(self):
        return self.optimizer.state_dict()


@pytest.mark.parametrize(("kind", "name"), [(Answering, "retained"), (Named, "optimizer")])
def test_the_optimizer_that_it_keeps_is_prepared_in_its_place(kind, name):
    accelerator = Accelerator(cpu=True)
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    own = kind(optimizer)
    prepared, model = accelerator.prepare(own, model)
    assert prepared is own
    held = vars(own)[name]
    assert type(held) is AcceleratedOptimizer
    assert held.optimizer is optimizer
    assert accelerator.prepare(own) is own
    assert vars(own)[name] is held


def test_one_of_copies_of_the_weights_stays_as_it_is():
    accelerator = Accelerator(cpu=True)
    model = nn.Linear(3, 1)
    own = Named(torch.optim.SGD([p.detach().clone().requires_grad_() for p in model.parameters()], lr=0.1))
    accelerator.prepare(model, own)
    assert type(own.optimizer) is torch.optim.SGD


def test_a_scheduler_of_the_scripts_own_is_one():
    class Schedule:
        def __init__(self, optimizer):
            self.optimizer = optimizer

        def step(self):
            pass

        def state_dict(self):
            return {}

    accelerator = Accelerator(cpu=True)
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    prepared = accelerator.prepare(model, optimizer, Schedule(optimizer))[2]
    assert type(prepared) is AcceleratedScheduler
