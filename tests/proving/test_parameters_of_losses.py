"""Parameters that an optimizer steps and no wrapper has, as those of a loss: their gradients are of one process."""

from __future__ import annotations

import pytest

from tests.proving.several_programs import findings, named

HEAD = """
import itertools
from pytorch_metric_learning import losses

dist.init_process_group("gloo")
loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data, shuffle=False))


class Center(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.centers = torch.nn.Parameter(torch.ones(10, 1))

    def forward(self, x, y):
        return (x - self.centers[y.long().view(-1)]).pow(2).mean()


class Plain(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.mse = torch.nn.MSELoss()

    def forward(self, x, y):
        return self.mse(x, y)


model = DDP(torch.nn.Linear(4, 1))
"""
LOOP = """
for x, y in loader:
    opt.zero_grad()
    {loss}.backward()
    {between}opt.step()
"""
OWN, PROXIES, SCALE = "Center()", "losses.ProxyAnchorLoss(10, 1)", "torch.nn.Parameter(torch.ones(1))"
GROUPS = '[{"params": model.parameters()}, {"params": loss.parameters(), "lr": 0.5}]'
SUM, CHAIN = (
    "list(model.parameters()) + list(loss.parameters())",
    "itertools.chain(model.parameters(), loss.parameters())",
)
CALLED, SCALED = "loss(model(x), y)", "F.mse_loss(model(x) * loss, y)"


def program(loss, stepped, called=CALLED, between=""):
    opt = f"loss = {loss}\nopt = torch.optim.SGD({stepped}, lr=0.1)\n"
    return HEAD + opt + LOOP.format(loss=called, between=between)


@pytest.mark.parametrize("loss", [OWN, PROXIES])
@pytest.mark.parametrize("stepped", [GROUPS, SUM, CHAIN])
def test_losses_with_parameters(loss, stepped, tmp_path):
    found = findings(program(loss, stepped), tmp_path)
    assert [one.code for one in found] == ["ACC705"]
    assert "are not averaged over the processes" in found[0].message


@pytest.mark.parametrize(
    "stepped",
    [
        "[*model.parameters(), loss]",
        "list(model.parameters()) + [loss]",
        GROUPS.replace("loss.parameters()", "[loss]"),
    ],
)
def test_parameters_by_themselves(stepped, tmp_path):
    assert named(program(SCALE, stepped, SCALED), tmp_path) == [("ACC705", "opt.step()")]


@pytest.mark.parametrize("loss", [OWN, PROXIES])
def test_losses_with_optimizers_of_their_own(loss, tmp_path):
    both = program(loss, "model.parameters()") + "    other.step()\n"
    both = both.replace("opt = ", "other = torch.optim.SGD(loss.parameters(), lr=0.5)\nopt = ")
    assert named(both, tmp_path) == [("ACC705", "other.step()")]


@pytest.mark.parametrize("loss", ["DDP(Center())", f"DDP({PROXIES})", "Plain()", "torch.nn.MSELoss()"])
@pytest.mark.parametrize("stepped", [GROUPS, SUM, CHAIN])
def test_losses_in_a_wrapper_or_without_parameters(loss, stepped, tmp_path):
    assert not named(program(loss, stepped), tmp_path)


def test_losses_whose_parameters_nothing_steps(tmp_path):
    assert not named(program(OWN, "model.parameters()"), tmp_path)


def test_gradients_that_are_averaged_by_hand(tmp_path):
    by_hand = "dist.all_reduce(loss.grad, op=dist.ReduceOp.AVG)\n    "
    assert not named(program(SCALE, "[*model.parameters(), loss]", SCALED, by_hand), tmp_path)
