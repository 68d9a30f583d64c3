"""Models that hold others, and objects of which nothing is known that are prepared or trained."""

from __future__ import annotations

import pytest

from accelify.knowledge import Knowledge
from accelify.obligations import Status, Validation, validate

KNOWLEDGE = Knowledge()
HEAD = """\
import lib
import torch
from torch import nn
from torch.utils.data import DataLoader
from accelify.runtime import Accelerator
accelerator = Accelerator()
loader = accelerator.prepare(DataLoader(torch.load("d"), batch_size=6))
"""
BLOCK = """
class Block(nn.Module):
    def forward(self, x):
        return {result}
"""
HOLDER = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        {made}
    def forward(self, x):
        {call}
        return x
net = accelerator.prepare(Net())
"""
TRAINS = "for x, y in loader:\n    accelerator.backward(net(x).mean())\n"
TESTS = """
right = 0
for x in torch.load("test"):
    right += net(x).argmax().item()
accelerator.print(right)
"""


def proved(text: str) -> Validation:
    return validate(HEAD + text, None, KNOWLEDGE)


def status(text: str, demand: str) -> list[Status]:
    return [one.status for one in proved(text).obligations if one.demand == demand]


@pytest.mark.parametrize(
    ("made", "call"),
    [
        ("self.body = nn.ModuleList([Block(), Block()])", "x = self.body[1](x)"),
        ("self.body = nn.ModuleList([Block() for n in range(9)])", "for one in self.body: x = one(x)"),
        ("self.body = nn.ModuleList(); self.body.append(Block())", "for one in self.body: x = one(x)"),
        ("self.body = nn.ModuleDict({'a': Block()})", "x = self.body['a'](x)"),
        ("self.body = nn.ModuleDict({'a': Block()})", "for one in self.body.values(): x = one(x)"),
        ("self.body = nn.Sequential(nn.Linear(2, 2), Block())", "x = self.body(x)"),
        ("self.body = nn.Sequential(*[Block() for n in range(9)])", "x = self.body(x)"),
    ],
)
def test_what_a_model_does_that_another_holds(made: str, call: str) -> None:
    holder = HOLDER.format(made=made, call=call)
    assert status(BLOCK.format(result="x @ x.T") + holder + TRAINS, "loss") == [Status.NAMED]
    assert status(BLOCK.format(result="x @ self.weight") + holder + TRAINS, "loss") == [Status.PROVED]
    assert status(BLOCK.format(result="print(x) or x") + holder + TRAINS, "once") == [Status.NAMED]


UNKNOWN_LOADERS = ["lib.loader()", "lib.Data().loader()", "lib.loaders()['train']", "lib.Data().train"]


@pytest.mark.parametrize("made", UNKNOWN_LOADERS)
def test_a_prepared_object_of_which_nothing_is_known_may_be_a_loader(made: str) -> None:
    text = f"net, train = accelerator.prepare(nn.Linear(2, 2), {made})\ntotal = 0\n"
    text += "for x, y in train:\n    {}\n    total += x.sum()\naccelerator.print({})\n"
    backward = "accelerator.backward(net(x).mean())"
    assert status(text.format(backward, "total"), "content") == [Status.NAMED]
    assert status(text.format(backward, "len(train)"), "content") == [Status.NAMED]
    assert status(text.format(f"if (net(x) > 0).any(): {backward}", 1), "all ranks") == [Status.NAMED]
    assert status(text.format(backward, 1), "all ranks") == [Status.PROVED]


UNKNOWN_MODELS = [
    "net = accelerator.prepare(lib.Net())\n",
    "net = lib.Net()\noptimizer = accelerator.prepare(torch.optim.SGD(net.parameters(), lr=0.1))\n",
    "net = lib.Net()\nnet.train()\n",
    HOLDER.format(made="self.body = lib.Body()", call="x = self.body(x)"),
]


@pytest.mark.parametrize("made", UNKNOWN_MODELS)
def test_a_model_of_which_nothing_is_known_gives_the_same_for_the_same(made: str) -> None:
    found = proved(made + TRAINS + TESTS)
    assert {one.status for one in found.obligations if one.demand in ("loss", "content")} == {Status.PROVED}
    assert any("row by row" in one.text for one in found.assumptions)
    shared = TESTS.replace('x in torch.load("test")', "x, y in loader")
    assert status(made + TRAINS + shared, "content") == [Status.NAMED]


def test_a_metric_of_which_nothing_is_known_keeps_what_it_gets() -> None:
    held = HOLDER.format(made="self.seen = lib.Metric()", call="self.seen(x)")
    shown = "accelerator.print({}.compute())\n"
    assert status(held + TRAINS + shown.format("net.seen"), "content") == [Status.NAMED]
    plain = "seen = lib.Metric()\nfor x, y in loader:\n    seen({})\n" + shown.format("seen")
    assert status(plain.format("x"), "content") == [Status.NAMED]
    assert status(plain.format("1"), "content") == [Status.PROVED]


def test_a_layer_of_which_nothing_is_known_begins_anew_with_each_batch() -> None:
    call = "state = self.layer.begin(); x, state = self.layer(x, state)"
    made = HOLDER.format(made="self.layer = lib.Layer()", call=call)
    assert status(made + TRAINS + TESTS, "content") == [Status.PROVED]
    assert status(f"{made}{TRAINS}accelerator.print(net.layer.begin())\n", "content") == [Status.NAMED]


def test_a_model_that_holds_others_of_its_class() -> None:
    text = """
class Block(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(2, 2), inner)
    def forward(self, x):
        return {result}
net = nn.Linear(2, 2)
for n in range(5):
    net = Block(net)
net = accelerator.prepare(net)
"""
    found = proved(text.format(result="x + self.inner(x)") + TRAINS)
    assert {one.status for one in found.obligations if one.demand == "loss"} == {Status.PROVED}
    assert found.unread == []
    assert [one.text for one in found.assumptions] == ["Block works row by row"]
    assert status(text.format(result="x @ self.inner(x).T") + TRAINS, "loss") == [Status.NAMED]
