"""Optimizers whose classes the script writes, in scripts that are written for several processes."""

from __future__ import annotations

import pytest

from tests.proving.several_programs import named

CLASS = """
import argparse, yaml
from torch.optim.optimizer import Optimizer

class Scaled(Optimizer):
    def __init__(self, params, lr):
        super(Scaled, self).__init__(params, dict(lr=lr))

    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                buffer = self.state[p].setdefault("buffer", torch.zeros_like(p))
                buffer.mul_(0.9).add_(p.grad)
                p.data.add_(-group["lr"] * buffer)

class Options:
    def __init__(self, read):
        for key, value in read.items():
            self.__dict__[key] = Options(value) if isinstance(value, dict) else value

    def __getattr__(self, name):
        raise AttributeError(f"{name} is not in the file")

def chosen(name, model):
    if name == "sgd":
        return torch.optim.SGD(model.parameters(), lr=0.1)
    elif name == "scaled":
        return Scaled(model.parameters(), 0.1)
    raise ValueError(name)

options = Options(yaml.safe_load(open("options.yaml")))
"""
LOOP = """
dist.init_process_group("gloo")
net = DDP(torch.nn.Linear(4, 1))
opt = MADE
for x, y in DataLoader(data, batch_size=4, sampler=DistributedSampler(data, shuffle=False)):
    opt.zero_grad()
    loss = F.mse_loss(net(x), y)
    loss.backward()
    if CONDITION:
        opt.step()
"""


@pytest.mark.parametrize(
    "made",
    ["Scaled(net.parameters(), 0.1)", "chosen(options.train.name, net)", "chosen(options.name, net)"],
)
@pytest.mark.parametrize(("condition", "found"), [("loss.item() < 9.0", True), ("options.steps", False)])
def test_a_step_under_a_condition_is_named_where_it_is_taken(made, condition, found, tmp_path):
    text = CLASS + LOOP.replace("MADE", made).replace("CONDITION", condition)
    assert named(text, tmp_path) == [("ACC704", "opt.step()")] * found
