"""Data that is drawn at random before the Accelerator is made, and that nothing seeds: named."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelify.conversion import ConvertOptions
from accelify.convert import convert_project
from accelify.findings import Severity
from accelify.source import Source

MAIN = """\
import random
import numpy as np
import torch
from sklearn.model_selection import KFold, train_test_split
from cutting import Cutter, seed_all, split
from trainer import Trainer


def main(seed=0):
    torch.manual_seed(seed)
    {draw}
    Trainer(range(30), range(30, 40)).train()


if __name__ == "__main__":
    main()
"""
TRAINER = """\
import numpy as np
import torch
from torch import nn


class Trainer:
    def __init__(self, train, test):
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.model = nn.Linear(1, 2).to(self.device)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.own, self.rest = train, test

    def train(self):
        for index in np.random.permutation(self.own):
            x = torch.full((1, 1), float(index)).to(self.device)
            self.optimizer.zero_grad()
            self.model(x).sum().backward()
            self.optimizer.step()
"""
CUTTING = """\
import os
import random
import numpy as np
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.order = np.random.permutation(4)


class Cutter:
    def __init__(self, items):
        self.items = items

    def cut(self, by_hand=False):
        if by_hand:
            random.shuffle(self.items)
        self.parts()

    def parts(self):
        for _ in self.items:
            self.chosen = np.random.choice(self.items)


def split(items, file="split.txt"):
    if os.path.exists(file):
        return open(file).read()
    return random.sample(items, 10)


def seed_all(seed):
    np.random.seed(seed)
"""


def said(
    folder: Path, draw: str, runtime: str = "accelify", cutting: str = CUTTING, trainer: str = TRAINER
) -> list[tuple[Severity, int, str]]:
    for name, text in (("cutting", cutting), ("trainer", trainer), ("main", MAIN.format(draw=draw))):
        (folder / f"{name}.py").write_text(text)
    found = convert_project(Source.read(folder / "main.py"), ConvertOptions(runtime=runtime))
    assert {c.status for c in found} == {"converted"}
    return [
        (f.severity, f.line, f.message)
        for c in found
        for f in c.remaining
        if f.code == "ACC402" and "draws from" in f.message
    ]


# The functions that seed are left out of the module: what could seed is taken to.
UNSEEDED = CUTTING.split("def seed_all")[0] + "def seed_all(seed): pass\n"


@pytest.mark.parametrize(
    ("draw", "shown", "generator"),
    [
        ("order = np.random.permutation(40)", "`np.random.permutation(40)`", "NumPy"),
        ("a, b = train_test_split(range(40))", "`train_test_split(range(40))`", "NumPy"),
        ("a = list(range(9)); random.shuffle(a)", "`random.shuffle(a)`", "Python's random"),
        ("x = [random.choice([1, 2]) for _ in range(9)]", "`random.choice([1, 2])`", "Python's random"),
        ("x = np.random.choice(40, 9)", "`np.random.choice(40, 9)`", "NumPy"),
        ("folds = KFold(4, shuffle=True)", "`KFold(4, shuffle=True)`", "NumPy"),
        ("Cutter([1, 2]).cut()", "`np.random.choice(self.items)` (cutting.py:24)", "NumPy"),
    ],
)
def test_unseeded_draws_above_the_accelerator_are_named(
    tmp_path: Path, draw: str, shown: str, generator: str
) -> None:
    message = (
        f"{shown} draws from {generator} before the Accelerator is made, and nothing seeds it: every process draws "
        "other numbers{}; seed it first, or make the Accelerator above"
    )
    launched = ", unless `accelify launch` starts them all on one machine"
    assert said(tmp_path, draw, cutting=UNSEEDED) == [(Severity.INFO, 11, message.format(launched))]
    assert said(tmp_path, draw, "accelerate", UNSEEDED) == [(Severity.WARNING, 11, message.format(""))]


@pytest.mark.parametrize(
    "draw",
    [
        "order = torch.randperm(40)",
        "a, b = train_test_split(range(40), random_state=0)",
        "a, b = train_test_split(range(40), shuffle=False)",
        "folds = KFold(4)",
        "port = random.randint(10000, 20000)",
        "order = np.random.RandomState(0).permutation(40)",
        "order = np.random.permutation(40) if seed else None",
        "if seed: order = np.random.permutation(40)",
        "colors = [(np.random.randint(255), random.random()) for _ in range(9)]",
        "name = random.choice('abc')",
        "name = ''.join([random.choice('abc') for _ in range(9)])",
        "split([1, 2])",
        "from cutting import Net; net = Net()",
        "np.random.seed(0); order = np.random.permutation(40)",
        "random.seed(0); random.shuffle([1, 2])",
        "from transformers import set_seed; set_seed(0); order = np.random.permutation(40)",
        "import runs; runs.begin(seed); order = np.random.permutation(40)",
    ],
)
def test_what_is_seeded_or_may_not_run_is_not(tmp_path: Path, draw: str) -> None:
    assert said(tmp_path, draw, cutting=UNSEEDED) == []


def test_a_helper_of_the_project_seeds(tmp_path: Path) -> None:
    assert said(tmp_path, "seed_all(0); order = np.random.permutation(40)") == []


@pytest.mark.parametrize(
    ("seeding", "seeded"),
    [
        ("np.random.seed(0)", True),
        ("from cutting import seed_all as own; own(0)", False),
        ("torch.manual_seed(0)", False),
    ],
)
def test_seeds_of_modules_that_are_converted_too_count(tmp_path: Path, seeding: str, seeded: bool) -> None:
    trainer = TRAINER.replace("from torch import nn\n", f"from torch import nn\n{seeding}\n")
    found = said(tmp_path, "order = np.random.permutation(40)", cutting=UNSEEDED, trainer=trainer)
    assert bool(found) is not seeded


def test_it_is_made_above_what_its_own_function_draws(tmp_path: Path) -> None:
    begin = "    def __init__(self, train, test):\n"
    drawing = f"{begin}        train = list(train)\n        np.random.shuffle(train)\n"
    assert said(tmp_path, "pass", cutting=UNSEEDED, trainer=TRAINER.replace(begin, drawing)) == []


def test_draws_behind_the_accelerator_are_shared(tmp_path: Path) -> None:
    assert said(tmp_path, "pass", cutting=UNSEEDED) == []


DRAWN = """\
import argparse
import random
import numpy as np
import torch
from trainer import Trainer

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default={default})
args = parser.parse_args()
if args.seed is None:
    args.seed = random.randint(1, 10000)
np.random.seed(args.seed)
order = np.random.permutation(40)


def main():
    Trainer(order[:30], order[30:]).train()


main()
"""


@pytest.mark.parametrize("default", ["None", "3"])
def test_a_seed_that_every_process_draws_is_none(tmp_path: Path, default: str) -> None:
    (tmp_path / "trainer.py").write_text(TRAINER)
    (tmp_path / "main.py").write_text(DRAWN.format(default=default))
    found = convert_project(Source.read(tmp_path / "main.py"))
    told = [f.message for c in found for f in c.remaining if "draws from" in f.message]
    assert len(told) == (default == "None")
    assert all("and its seed `args.seed` is drawn too" in message for message in told)
