"""Base classes of other modules that choose the device of what trains, move it there, or save it, come along."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.transforms.test_project_roles import TORCH, project

LEFT = """\
class Basic:
    def __init__(self, args):
        self.args = args

    def report(self, loss):
        self.last = loss
"""
ASSIGNS = """\
import torch


class Basic:
    def __init__(self, args):
        self.args = args
        self.device = torch.device("cuda:0" if args.gpu else "cpu")
"""
RETURNS = """\
import torch


class Basic:
    def __init__(self, args):
        self.args = args
        self.device = self.pick()

    def pick(self):
        if self.args.gpu:
            return torch.device("cuda:{}".format(self.args.gpu))
        return torch.device("cpu")
"""
CHOOSES = """\
import torch


class Basic:
    def __init__(self, args):
        self.args = args
        self.device = self.pick()

    def pick(self):
        if self.args.gpu:
            device = torch.device("cuda:{}".format(self.args.gpu))
        else:
            device = torch.device("cpu")
        return device
"""
MOVES = """\
class Basic:
    def __init__(self, args):
        self.args = args
        self.device = args.device
        self.model = self.build().to(self.device)

    def build(self):
        raise NotImplementedError
"""
SAVES = """\
import torch


class Basic:
    def __init__(self, args):
        self.args = args
        self.best = 0

    def save(self, score):
        torch.save(self.model.state_dict(), self.args.path)
        if score > self.best:
            self.best = score
            print("the best", score)
"""
SAVING = """\
    def __init__(self, args):
        super().__init__(args)
        self.device = "cuda"
        self.model = nn.Linear(4, 3).to(self.device)

    def end(self, score):
        self.save(score)
        return self.best
"""
OWN_MODEL = """\
    def __init__(self, args):
        super().__init__(args)
        self.model = nn.Linear(4, 3).to(self.device)
"""
BUILT = """\
    def __init__(self, args):
        super().__init__(args)

    def build(self):
        model = nn.Linear(4, 3)
        return model
"""
TRAINS = """\

    def train(self, data):
        loader = DataLoader(data, batch_size=8, shuffle=True)
        optimizer = torch.optim.Adam(self.model.parameters())
        for x, y in loader:
            x, y = x.to(self.device), y.to(self.device)
            loss = nn.functional.cross_entropy(self.model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    def look(self, x):
        return self.model(x.to(self.device))
"""


def trainer(own: str) -> str:
    head = TORCH.rstrip() + "\nfrom torch.utils.data import DataLoader\n\nfrom base import Basic\n\n\n"
    return f"{head}class Trainer(Basic):\n{own}{TRAINS}"


def test_one_that_places_nothing_stays(tmp_path: Path) -> None:
    own = OWN_MODEL.replace(".to(self.device)\n", ".cuda()\n        self.device = 'cuda'\n")
    texts = project(tmp_path, main=trainer(own), base=LEFT)
    assert texts["base"] == LEFT
    assert "super().__init__(args)\n" in texts["main"]


def test_one_that_assigns_a_device_is_answered_in_the_subclass(tmp_path: Path) -> None:
    texts = project(tmp_path, main=trainer(OWN_MODEL), base=ASSIGNS)
    assert texts["base"] == ASSIGNS
    assert "super().__init__(args)\n        self.device = self.accelerator.device\n" in texts["main"]


@pytest.mark.parametrize("base", [RETURNS, CHOOSES])
def test_one_that_chooses_a_device_in_a_method(tmp_path: Path, base: str) -> None:
    texts = project(tmp_path, main=trainer(OWN_MODEL), base=base)
    assert "super().__init__(self.accelerator, args)" in texts["main"]
    chosen = (
        "self.device = self.accelerator.device\n" if base is RETURNS else "device = self.accelerator.device\n"
    )
    assert f"        {chosen}" in texts["base"]
    assert "self.accelerator = Accelerator(cpu=not args.gpu)" in texts["main"]


def test_one_that_moves_the_model(tmp_path: Path) -> None:
    texts = project(tmp_path, main=trainer(BUILT), base=MOVES)
    assert "        self.model = self.build()\n" in texts["base"]
    assert "        self.model = self.accelerator.prepare(self.model)\n" in texts["base"]
    assert "prepare(model)" not in texts["main"]


def test_it_comes_along_with_a_trainer_that_another_script_starts(tmp_path: Path) -> None:
    main = "from types import SimpleNamespace\n\nimport torch\nfrom torch.utils.data import TensorDataset\n"
    main += "\nfrom trainer import Trainer\n\n"
    main += "data = TensorDataset(torch.randn(32, 4), torch.randint(0, 3, (32,)))\n"
    main += "Trainer(SimpleNamespace(gpu=1)).train(data)\n"
    texts = project(tmp_path, main=main, trainer=trainer(OWN_MODEL), base=CHOOSES)
    assert "self.accelerator.device" in texts["base"]
    assert "cuda" not in texts["base"]


def test_one_that_saves(tmp_path: Path) -> None:
    texts = project(tmp_path, main=trainer(SAVING), base=SAVES)
    assert "super().__init__(self.accelerator, args)" in texts["main"]
    saved = "self.accelerator.save(self.accelerator.unwrap_model(self.model).state_dict(), self.args.path)"
    assert saved in texts["base"]
    assert 'self.accelerator.print("the best", score)' in texts["base"]


def test_one_that_saves_goes_on_to_fit_others_that_derive_from_it(tmp_path: Path) -> None:
    (tmp_path / "other.py").write_text(
        "from base import Basic\n\n\nclass Other(Basic):\n    pass\n\n\nOther(1)\n"
    )
    texts = project(tmp_path, main=trainer(SAVING), base=SAVES)
    assert "def __init__(self, args, accelerator=None):" in texts["base"]
    assert "super().__init__(args, accelerator=" in texts["main"], texts["main"]


def test_one_that_saves_comes_along_with_a_trainer_that_another_script_starts(tmp_path: Path) -> None:
    main = "from types import SimpleNamespace\n\nimport torch\nfrom torch.utils.data import TensorDataset\n"
    main += "\nfrom trainer import Trainer\n\n"
    main += "data = TensorDataset(torch.randn(32, 4), torch.randint(0, 3, (32,)))\n"
    main += "trainer = Trainer(SimpleNamespace(path='net.pt'))\ntrainer.train(data)\ntrainer.end(1)\n"
    texts = project(tmp_path, main=main, trainer=trainer(SAVING), base=SAVES)
    assert "self.accelerator.save(" in texts["base"]
