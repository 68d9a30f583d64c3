"""Names that stay global when the later cells of a notebook become a function."""

from __future__ import annotations

import pytest

from accelify.cell_names import global_names, name_of_new_function

FIT = "def fit(net):\n    for x in data:\n        accelerator.backward(net(x))\n"
MADE = "accelerator = Accelerator()\nnet = Net()\n"


@pytest.mark.parametrize(
    ("before", "after", "wanted"),
    [
        ("import torch\n", MADE, []),
        (FIT, MADE, ["accelerator"]),
        (FIT, f"{MADE}data = [1]\nfit(net)\n", ["accelerator", "data"]),
        (FIT.replace("(net)", "(net, data, accelerator)", 1), MADE, []),
        ("class Net:\n    def f(self):\n        return accelerator.device\n", MADE, ["accelerator"]),
        ("net = Net()\n", "accelerator = Accelerator()\nnet = accelerator.prepare(net)\n", ["net"]),
        ("net = Net()\n", "accelerator = Accelerator()\nnet = Other()\nnet = accelerator.prepare(net)\n", []),
        ("net = Net()\n", "p = [p for p in net.parameters()]\nnet = prepare(net)\n", ["net"]),
        ("best = 0\n", "best += 1\n", ["best"]),
        ("i = 0\n", "for i in range(3):\n    print(i)\n", []),
        ("import torch\n", "best = 0\ndef f():\n    global best\n    best = 1\n", ["best"]),
        ("x = 1\n", "def f(:\n", []),
    ],
)
def test_names(before: str, after: str, wanted: list[str]) -> None:
    assert global_names([before], [after]) == wanted


@pytest.mark.parametrize(
    ("cell", "wanted"),
    [
        ("net.train()\nfit(net, train=True)\n", "train"),
        ("def train(net):\n    pass\n", "run_training"),
        ("from loops import train, run_training\n", "train_on_all"),
        ("def f():\n    train, test = split()\n", "run_training"),
        ("def f(:\n", "train"),
    ],
)
def test_the_function_that_cells_are_put_into_has_a_name_of_its_own(cell: str, wanted: str) -> None:
    assert name_of_new_function(["import torch\n", cell]) == wanted
