"""Where the Accelerator is made in a script whose main guard does everything."""

from __future__ import annotations

from pathlib import Path

from accelify.convert import Conversion, convert_paths

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
