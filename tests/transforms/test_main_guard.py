"""Where the Accelerator is made in a script whose main guard does everything."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelify.conversion import Conversion
from accelify.convert import convert_paths, convert_source
from accelify.source import Source

RUN = """\
import argparse
from work import One, Two

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--two", action="store_true")
    parser.add_argument("--use_gpu", action="store_true")
    args = parser.parse_args()
    Work = Two if args.two else One
    one = Work(args)
    one.train()
"""
BASE = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Base:
    def __init__(self, args):
        self.device = torch.device("cuda:0" if args.use_gpu else "cpu")
        self.model = nn.Linear(4, 1).to(self.device)
"""
CLASS = """

class {name}(Base):
    def __init__(self, args):
        super().__init__(args)

    def train(self):
        loader = DataLoader(TensorDataset(torch.randn(16, 4), torch.randn(16, 1)), batch_size=4)
        optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        for x, y in loader:
            loss = (self.model(x.to(self.device)) - y.to(self.device)).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
"""


def converted(folder: Path, run: str = RUN) -> Conversion:
    (folder / "work.py").write_text(BASE + CLASS.format(name="One") + CLASS.format(name="Two"))
    (folder / "run.py").write_text(run)
    found = next(c for c in convert_paths([folder / "run.py"]) if c.source.path.name == "run.py")
    assert found.status == "converted", found.reason
    return found


def test_it_is_made_inside_where_the_options_are_known(tmp_path: Path) -> None:
    """Above the guard, whoever imports the script would make one too: a worker that a loader spawns."""
    found = converted(tmp_path)
    made = "    args = parser.parse_args()\n    accelerator = Accelerator(cpu=not args.use_gpu)\n"
    assert made in found.new_text
    assert "one = Work(accelerator, args)" in found.new_text
    assert not found.remaining


def test_it_is_made_above_where_others_need_it(tmp_path: Path) -> None:
    run = RUN.replace("if __name__", "first = One(argparse.Namespace(use_gpu=False))\n\nif __name__")
    assert "\naccelerator = Accelerator()\n" in converted(tmp_path, run).new_text


LOADS = """\
import sys
import torch
from torch import nn
from torch.utils.data import DataLoader


def loaders(size):
    data = torch.randn(16, 4)
    return DataLoader(data, batch_size=size), DataLoader(data, batch_size=2 * size)


{loads}

if __name__ == "__main__":
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x in train:
        optimizer.zero_grad()
        model(x).pow(2).mean().backward()
        optimizer.step()
"""


@pytest.mark.parametrize(
    ("loads", "above"),
    [
        ("train, test = loaders(4)", True),
        ("if sys.argv[1:]:\n    train, test = loaders(2)\nelse:\n    train, test = loaders(4)", True),
        (
            "if sys.argv[1:]:\n    train = DataLoader(torch.randn(8, 4))\nelse:\n    train = loaders(4)[0]",
            True,
        ),
        ("train, test = [torch.randn(8, 4)], None", False),
    ],
)
def test_it_is_made_above_loaders_that_a_function_gives_there(loads: str, above: bool) -> None:
    found = convert_source(Source.from_text(LOADS.format(loads=loads), Path("train.py")))
    assert found.status == "converted", found.reason
    assert ("\naccelerator = Accelerator(" in found.new_text) is above


RUNNER = """\
import torch
from torch import nn
from torch.utils.data import DataLoader


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 2)

    @classmethod
    def from_pretrained(cls, name):
        net = Net()
        old = Library.from_pretrained(name)
        net.load_state_dict(old.state_dict())
        return net

    def forward(self, x):
        return self.fc(x)

    def optimizer(self, rate):
        return torch.optim.SGD(self.parameters(), lr=rate)


class Runner:
    def __init__(self, model, data):
        self.model, self.data, self.callbacks, self.step = model, data, [], 0

    def run(self):
        optimizer = self.model.optimizer(0.1)
        for x, y in DataLoader(self.data, batch_size=8):
            self.loss = nn.functional.cross_entropy(self.model(x), y)
            optimizer.zero_grad()
            self.loss.backward()
            optimizer.step()
            self.step += 1
            for one in self.callbacks:
                one(self)
"""
CALLS_BACK = """\
import torch
from torch.utils.data import TensorDataset
from runner import Net, Runner

if __name__ == "__main__":
    model = Net()
    runner = Runner(model, TensorDataset(torch.randn(64, 4), torch.ones(64).long()))

    def told(runner):
        print(runner.step, runner.loss.item())
        torch.save(model.state_dict(), "model.pt")

    runner.callbacks.append(told)
    runner.run()
"""


def test_a_callback_that_stands_in_the_guard_sees_what_the_guard_made(tmp_path: Path) -> None:
    """The model is the guard's: a factory of its class that nobody calls makes none that is trained."""
    (tmp_path / "runner.py").write_text(RUNNER)
    (tmp_path / "run.py").write_text(CALLS_BACK)
    found = convert_paths([tmp_path / "run.py"])[0]
    assert found.status == "converted", found.reason
    assert "        accelerator.print(runner.step" in found.new_text
    assert 'accelerator.save(accelerator.unwrap_model(model).state_dict(), "model.pt")' in found.new_text


def test_a_factory_that_is_called_makes_a_model_that_is_trained(tmp_path: Path) -> None:
    (tmp_path / "runner.py").write_text(RUNNER)
    (tmp_path / "run.py").write_text(CALLS_BACK.replace("model = Net()", "model = Net.from_pretrained('a')"))
    found = convert_paths([tmp_path / "run.py"])[0]
    assert "model = accelerator.prepare(model)" in found.new_text, found.reason


SCORES = """\
import torch
from torch.utils.data import DataLoader


def score(model, data):
    total = 0
    with torch.no_grad():
        for x, y in DataLoader(data, batch_size=2):
            total += (model(x) == y).sum().item()
    return total


if __name__ == "__main__":
    print(score(torch.nn.Linear(3, 1), []))
"""
SOLVES = """\
import torch
from score import score


class Solver:
    def __init__(self):
        self.model = torch.nn.Linear(3, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def train(self, data):
        for x, y in torch.utils.data.DataLoader(data, batch_size=2):
            self.optimizer.zero_grad()
            (self.model(x) - y).pow(2).mean().backward()
            self.optimizer.step()
        print(score(self.model, data))
"""
STARTS = """\
import torch
from solver import Solver


def main():
    data = torch.utils.data.TensorDataset(torch.randn(8, 3), torch.ones(8, 1))
    Solver().train(data)


main()
"""


def test_an_evaluation_that_can_be_started_by_itself_keeps_its_data_whole(tmp_path: Path) -> None:
    """Its own main guard calls it without an Accelerator: that must not keep the training from being converted."""
    for name, text in (("score", SCORES), ("solver", SOLVES), ("run", STARTS)):
        (tmp_path / f"{name}.py").write_text(text)
    found = {c.source.path.name: c for c in convert_paths([tmp_path / "run.py"])}
    solver = found["solver.py"]
    assert solver.status == "converted", found["run.py"].reason
    assert "self.accelerator.backward(" in solver.new_text
    assert "score.py" not in found
    (said,) = found["run.py"].remaining  # of a file that stays as it is
    assert (said.code, Path(said.path).name, said.line) == ("ACC303", "score.py", 8)
