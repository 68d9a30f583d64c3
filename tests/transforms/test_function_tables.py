"""Training functions that a table offers by name, and classes that make what needs the Accelerator early."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelify.conversion import Conversion
from accelify.convert import convert_paths, convert_source
from accelify.source import Source

TRAIN = """import torch
from torch import nn
from torch.utils.data import DataLoader


def train_{name}(model, data):
    loader = DataLoader(data, batch_size=4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x.cuda()), y.cuda()).backward()
        optimizer.step()


"""
MAIN = """if __name__ == "__main__":
    net = nn.Linear(3, 2).cuda()
    data = torch.utils.data.TensorDataset(torch.randn(8, 3), torch.randint(0, 2, (8,)))
    {table}
    {call}
"""


def converted(table: str, call: str, two: bool = False) -> Conversion:
    text = TRAIN.format(name="a") + (TRAIN.format(name="b") if two else "def train_b(m, d):\n    pass\n\n\n")
    return convert_source(Source(None, text + MAIN.format(table=table, call=call)))


@pytest.mark.parametrize(
    ("table", "call"),
    [
        ('kinds = {"a": train_a, "b": train_b}', 'kinds["a"](net, data)'),
        ('kinds = {"a": train_a}', 'kinds.get("a")(net, data)'),
        ('kinds = {"a": train_a}', 'run = kinds["a"]\n    run(net, data)'),
    ],
)
def test_functions_of_a_table_stay_as_they_are(table: str, call: str) -> None:
    text = converted(table, call).new_text
    assert "def train_a(model, data):" in text  # the name of the script's own guard reaches it
    assert call in text


AGENT = """import torch
from torch import nn


class Agent:
    def __init__(self, args):
        self.args = args
        self.model = nn.Linear(3, 2)
        if self.args.cuda:
            self.model.cuda()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def learn(self, x, y):
        if self.args.cuda:
            x, y = x.cuda(), y.cuda()
        self.optimizer.zero_grad()
        nn.functional.cross_entropy(self.model(x), y).backward()
        self.optimizer.step()
"""
RUNNER = """import torch
from agent import Agent, Other


class Runner:
    def __init__(self, args):
        self.agent = Agent(args) if args.plain else Other(args)
        self.args = args
        self.rewards = []

    def run(self):
        for _ in range(3):
            self.agent.learn(torch.randn(4, 3), torch.randint(0, 2, (4,)))


def main(args):
    Runner(args).run()
"""


def test_what_a_constructor_makes_first_gets_the_accelerator_before_it(tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text(AGENT + AGENT.partition("nn\n")[2].replace("Agent", "Other"))
    (tmp_path / "run.py").write_text(RUNNER)
    run, agent = convert_paths([tmp_path / "run.py"])
    assert agent.new_text.count("def __init__(self, accelerator, args):") == 2
    lines = [line.strip() for line in run.new_text.splitlines()]
    made = next(i for i, line in enumerate(lines) if line.startswith("self.accelerator = Accelerator("))
    assert made < next(i for i, line in enumerate(lines) if "Agent(self.accelerator, args)" in line)


def test_a_model_that_is_handed_over_and_put_in_dataparallel_under_a_test_is_prepared_behind_it() -> None:
    wrap = "    if torch.cuda.device_count() > 1:\n        model = nn.DataParallel(model)\n"
    text = TRAIN.format(name="a").replace("    optimizer =", wrap + "    optimizer =")
    found = convert_source(Source(None, text))
    assert "DataParallel" not in found.new_text
    assert (
        "\n    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)\n" in found.new_text
    )


@pytest.mark.parametrize(
    "chosen", ['eval("train_" + kind)', 'eval(f"train_{kind}")', 'globals()["train_" + kind]']
)
def test_functions_whose_name_is_put_together_take_the_accelerator(chosen: str) -> None:
    call = f"import sys\n    kind = sys.argv[1]\n    {chosen}(net, data)"
    text = converted("", call, True).new_text
    assert f"{chosen}(accelerator, net, data)" in text
    assert text.count("(accelerator, model, data):") == 2
    text = converted("", call).new_text  # `train_b` would not take it
    assert f"{chosen}(net, data)" in text
    assert "def train_a(model, data):" in text


@pytest.mark.parametrize("chosen", ["eval(kind)", 'eval("tr" + kind)', 'eval(kind + "train_a")'])
def test_a_name_of_which_too_little_is_told(chosen: str) -> None:
    call = f"import sys\n    kind = sys.argv[1]\n    {chosen}(net, data)"
    assert converted("", call, True).status == "refused"


def test_what_a_function_draws_whose_name_is_put_together(tmp_path: Path) -> None:
    plots = "import matplotlib.pyplot as plt\n\n\n"
    plots += (
        "def plot_a(x):\n    plt.plot(x)\n    plt.savefig('a.png')\n\n\ndef plot_b(x):\n    plt.plot(x)\n"
    )
    (tmp_path / "plots.py").write_text(plots)
    call = "train_a(net, data)\n    eval('plot_' + name)([1, 2])"
    (tmp_path / "train.py").write_text(
        f"from plots import plot_a, plot_b\nname = 'a'\n{TRAIN.format(name='a')}{MAIN.format(table='', call=call)}"
    )
    (found,) = convert_paths([tmp_path / "train.py"])
    assert "if accelerator.is_main_process:\n        eval('plot_' + name)([1, 2])" in found.new_text
