"""Moves of models stay where prepare does not get the model on every way."""

from __future__ import annotations

import pytest

from tests.transforms.support import convert, settled_source

DEVICE = "device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')"
SGD = "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)"


SAVES_ITSELF = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(4, 2)
    def save(self, path):
        torch.save({saved}, path)
    def forward(self, x):
        return self.head(x)
"""


@pytest.mark.parametrize(
    ("saved", "comes_back"), [("self.cpu()", True), ("self.cpu().state_dict()", True), ("self.head", False)]
)
def test_a_model_whose_method_takes_it_to_the_cpu_comes_back(saved: str, comes_back: bool) -> None:
    conversion = convert(
        build=f"model = Net().to(device)\n{SGD}",
        setup=DEVICE + SAVES_ITSELF.replace("{saved}", saved),
        epoch="model.save('model.pt')\nmodel.to(device)",
    )
    assert conversion.status == "converted", conversion.reason
    assert "model = Net()\n" in conversion.new_text
    assert ("    model.to(device)\n" in conversion.new_text) == comes_back


WAYS = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def make():
    return nn.Linear(4, 2)


def load(path):
    model = make()
    model.load_state_dict(torch.load(path))
    model.cuda().eval()
    return model, path


def train(model, loader):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x.cuda()), y.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def main():
    loader = DataLoader(TensorDataset(torch.randn(8, 4), torch.zeros(8).long()), batch_size=4)
    {main}


main()
"""
EVALUATED = "tested, _ = load('best.pt')\n    for x, _ in loader:\n        print(tested(x.cuda()).mean())"


@pytest.mark.parametrize(
    ("main", "stays"),
    [
        ("model, _ = load('model.pt')\n    train(model, loader)", False),
        ("model = make().cuda()\n    train(model, loader)\n    " + EVALUATED, True),
        (
            "model, _ = load('model.pt')\n    train(model, loader)\n    load('model.pt')[0](torch.ones(1, 4))",
            True,
        ),
        ("net, _ = load('model.pt')\n    model = net\n    train(model, loader)", False),
    ],
)
def test_a_factory_moves_what_its_callers_do_not_prepare(main: str, stays: bool) -> None:
    conversion = settled_source(WAYS.replace("{main}", main))
    assert ("model.to(accelerator.device).eval()" in conversion.new_text) == stays
    assert "make().cuda()" not in conversion.new_text


BRANCHES = """
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def first(net):
    loader = DataLoader(data, batch_size=4)
    whole = nn.Sequential(net, nn.ReLU()).cuda()
    optimizer = torch.optim.SGD(whole.parameters(), lr=0.1)
    for x, _ in loader:
        optimizer.zero_grad()
        whole(x.cuda()).sum().backward()
        optimizer.step()
    return net


def fit(net):
    loader = DataLoader(data, batch_size=4)
    net = net.cuda()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.mse_loss(net(x.cuda()), y.cuda()).backward()
        optimizer.step()


data = TensorDataset(torch.randn(16, 4), torch.randn(16, 4))


def main():
    {main}
    fit(net)


main()
"""


@pytest.mark.parametrize(
    ("main", "stays"),
    [
        (
            "if sys.argv[1:]:\n        net = nn.Linear(4, 4)\n"
            "    else:\n        net = nn.Linear(4, 4, bias=False)\n        net = first(net)",
            True,
        ),
        (
            "if sys.argv[1:]:\n        net = nn.Linear(4, 4)\n"
            "    else:\n        net = nn.Linear(4, 4, bias=False)",
            False,
        ),
        ("net = nn.Linear(4, 4)", False),
    ],
)
def test_a_model_is_moved_that_one_branch_does_not_prepare(main: str, stays: bool) -> None:
    conversion = settled_source(BRANCHES.replace("{main}", main))
    assert ("net = net.to(accelerator.device)" in conversion.new_text) == stays
