"""Classes chosen by a name of the configuration, and trainers whose base class lies in another module."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.transforms.test_project_roles import project

NETS = """\
from torch import nn


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.fc = nn.Linear(width, width)

    def forward(self, x):
        return self.fc(x).relu()


class Net(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.block = Block(width)
        self.out = nn.Linear(width, 3)

    def forward(self, x):
        return self.out(self.block(x))
"""
LOADERS = """\
import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset


class Loader(DataLoader):
    def __init__(self, batch_size, n=64):
        data = TensorDataset(torch.randn(n, 8), torch.randint(0, 3, (n,)))
        super().__init__(data, batch_size, shuffle=True)
"""
HELPER = """\
def get_instance(module, name, config, *args):
    return getattr(module, config[name]["type"])(*args, **config[name]["args"])


"""
METHOD = """\
class Config:
    def __init__(self, entries):
        self.entries = entries

    def init_obj(self, name, module, *args, **kwargs):
        module_name = self.entries[name]["type"]
        module_args = dict(self.entries[name]["args"])
        module_args.update(kwargs)
        return getattr(module, module_name)(*args, **module_args)


"""
MAIN = """\
import json

import torch
import torch.nn.functional as F

import loaders
import nets

{helper}config = {config}
loader = {loader}
model = {model}.to("cuda")
optimizer = {optimizer}
scheduler = {scheduler}
for epoch in range(3):
    total = 0
    for x, y in loader:
        x, y = x.to("cuda"), y.to("cuda")
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        total += loss.item()
    scheduler.step()
    print(total / len(loader))
"""
FORMS = {
    "a function": {
        "helper": HELPER,
        "config": 'json.load(open("config.json"))',
        "loader": 'get_instance(loaders, "loader", config)',
        "model": 'get_instance(nets, "arch", config)',
        "optimizer": 'get_instance(torch.optim, "optimizer", config, model.parameters())',
        "scheduler": 'get_instance(torch.optim.lr_scheduler, "scheduler", config, optimizer)',
    },
    "a method": {
        "helper": METHOD,
        "config": 'Config(json.load(open("config.json")))',
        "loader": 'config.init_obj("loader", loaders)',
        "model": 'config.init_obj("arch", nets)',
        "optimizer": 'config.init_obj("optimizer", torch.optim, model.parameters())',
        "scheduler": 'config.init_obj("scheduler", torch.optim.lr_scheduler, optimizer)',
    },
    "a class method's": {
        "helper": METHOD.replace(
            "    def init_obj",
            "    @classmethod\n    def from_file(cls, path):\n        return cls(json.load(open(path)))\n\n"
            "    def init_obj",
        ),
        "config": 'Config.from_file("config.json")',
        "loader": 'config.init_obj("loader", loaders)',
        "model": 'config.init_obj("arch", nets)',
        "optimizer": 'config.init_obj("optimizer", torch.optim, model.parameters())',
        "scheduler": 'config.init_obj("scheduler", torch.optim.lr_scheduler, optimizer)',
    },
    "getattr alone": {
        "helper": "",
        "config": 'json.load(open("config.json"))',
        "loader": 'getattr(loaders, config["loader"])(8)',
        "model": 'getattr(nets, config["arch"])()',
        "optimizer": 'getattr(torch.optim, config["optimizer"])(model.parameters(), lr=0.1)',
        "scheduler": 'getattr(torch.optim.lr_scheduler, config["scheduler"])(optimizer, 1)',
    },
}


@pytest.mark.parametrize("form", FORMS)
def test_what_is_made_by_name_has_the_kind_of_its_module(tmp_path: Path, form: str) -> None:
    text = project(tmp_path, main=MAIN.format(**FORMS[form]), nets=NETS, loaders=LOADERS)["main"]
    made = "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)\n"
    assert made in text
    assert 'x.to("cuda")' not in text
    assert "unwrap_model" not in text
    assert 'total = accelerator.reduce(total, reduction="mean")' in text


BASE = """\
class BaseTrainer:
    def __init__(self, model, optimizer, device):
        self.model = model.to(device)
        self.optimizer, self.device = optimizer, device

    def train(self, epochs):
        for epoch in range(epochs):
            print(epoch, self.train_epoch())
"""
TRAINER = """\
import torch.nn.functional as F
from base import BaseTrainer


class Trainer(BaseTrainer):{init}
    def train_epoch(self):
        for x, y in self.loader:
            x, y = x.to(self.device), y.to(self.device)
            self.optimizer.zero_grad()
            loss = F.cross_entropy(self.model(x), y)
            loss.backward()
            self.optimizer.step()
"""
INIT = """
    def __init__(self, model, optimizer, device, loader):
        super().__init__(model, optimizer, device)
        self.loader = loader
"""
STARTS = """\
import torch

import loaders
import nets
from trainer import Trainer

model = nets.Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = loaders.Loader(8)
trainer = Trainer(model, optimizer, torch.device("cuda"){loader})
{set}trainer.train(3)
"""


@pytest.mark.parametrize("own", [True, False])
def test_a_trainer_whose_base_lies_in_another_module(tmp_path: Path, own: bool) -> None:
    """Without a constructor of its own, it gets the Accelerator through that of its base."""
    starts = STARTS.format(loader=", loader" if own else "", set="" if own else "trainer.loader = loader\n")
    texts = project(
        tmp_path,
        main=starts,
        trainer=TRAINER.format(init=INIT if own else ""),
        base=BASE,
        nets=NETS,
        loaders=LOADERS,
    )
    assert "trainer = Trainer(accelerator, model, optimizer, " in texts["main"]
    assert "self.accelerator = accelerator" in texts["base"]
    assert "self.accelerator.backward(loss)" in texts["trainer"]
    assert "self.accelerator.print(epoch" in texts["base"]
    assert ("super().__init__(accelerator, model" in texts["trainer"]) == own


def test_an_endless_loader_of_a_package_that_passes_its_modules_on(tmp_path: Path) -> None:
    package = tmp_path / "utils"
    package.mkdir()
    (package / "__init__.py").write_text("from .util import *\n")
    (package / "util.py").write_text(
        "from itertools import repeat\n\n\n"
        "def endless(loader):\n    for one in repeat(loader):\n        yield from one\n"
    )
    main = """\
import torch
import torch.nn.functional as F

import loaders
import nets
from utils import endless

loader = loaders.Loader(8)
model = nets.Net().to("cuda")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for i, (x, y) in enumerate(endless(loader)):
    x, y = x.to("cuda"), y.to("cuda")
    optimizer.zero_grad()
    F.cross_entropy(model(x), y).backward()
    optimizer.step()
    if i == 100:
        break
"""
    text = project(tmp_path, main=main, nets=NETS, loaders=LOADERS)["main"]
    assert "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)\n" in text
    assert "x.to(" not in text


SETS = """\
import os

import torch
from torch.utils.data import Dataset


class Own(Dataset):
    def __init__(self, size=8):
        self.size = size
        if os.path.isfile("mean.pt"):
            self.mean = torch.load("mean.pt")
        else:
            self.mean = torch.zeros(3)
            torch.save(self.mean, "mean.pt")

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        return torch.ones(3), torch.ones(1)
"""
MAKES = """

def own(size=8):
    return Own(size)
"""
CHOSEN = """\
import sys

import torch

import sets

data = {}
loader = torch.utils.data.DataLoader(data, batch_size=4)
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    optimizer.zero_grad()
    (model(x) - y).pow(2).mean().backward()
    optimizer.step()
"""


@pytest.mark.parametrize("made", ["sets.__dict__[sys.argv[1]](8)", "vars(sets)[sys.argv[1]](size=8)"])
@pytest.mark.parametrize("held", ["a class", "a function", "of a package"])
def test_a_data_set_chosen_by_name_is_made_by_one_process_first(tmp_path: Path, made: str, held: str) -> None:
    modules = {"sets": SETS + (MAKES if held == "a function" else "")}
    if held == "of a package":
        modules = {"sets": "from inner import own\nfrom other import read\n", "inner": SETS + MAKES}
        modules["other"] = "def read(path):\n    return open(path).read()\n"
    text = project(tmp_path, main=CHOSEN.format(made), **modules)["main"]
    assert f"with accelerator.main_process_first():\n    data = {made}\n" in text
    assert "prepare(model, optimizer, loader)" in text


NAMED = """

KINDS = {"own": "Own", "other": "Other"}


def of(kind, size):
    return eval(KINDS[kind])(size)


def held(kind, size):
    chosen = eval(KINDS[kind])
    return chosen(size)
"""


@pytest.mark.parametrize("made", ["sets.of(sys.argv[1], 8)", "sets.held('own', 8)"])
def test_a_data_set_whose_name_a_table_has_is_made_by_one_process_first(tmp_path: Path, made: str) -> None:
    text = project(tmp_path, main=CHOSEN.format(made), sets=SETS + NAMED)["main"]
    assert f"with accelerator.main_process_first():\n    data = {made}\n" in text


def test_each_data_set_of_a_table_does_what_its_own_methods_do(tmp_path: Path) -> None:
    own = SETS.replace("Own", "Base").replace('torch.save(self.mean, "mean.pt")', "self.fetch()")
    own += "\n\nclass Other(Base):\n    def fetch(self):\n        pass\n"
    own += "\n\nclass Own(Base):\n    def fetch(self):\n        torch.save(self.mean, 'mean.pt')\n"
    for table in (NAMED, NAMED.replace('"own": "Own", "other": "Other"', '"other": "Other", "own": "Own"')):
        text = project(tmp_path, main=CHOSEN.format("sets.held('own', 8)"), sets=own + table)["main"]
        assert "with accelerator.main_process_first():\n    data = sets.held" in text


@pytest.mark.parametrize("base", ["torchvision.datasets.MNIST", "Dataset"])
def test_what_a_data_set_of_a_table_downloads_is_fetched_first(tmp_path: Path, base: str) -> None:
    own = f"import torchvision\n\n{SETS.replace('(Dataset)', f'({base})')}"
    own = own.replace("        self.size = size\n", "        super().__init__('data', download=True)\n")
    text = project(tmp_path, main=CHOSEN.format("sets.of('own', 8)"), sets=own + NAMED)["main"]
    assert "with accelerator.main_process_first():\n    data = sets.of('own', 8)\n" in text


def test_a_table_of_other_names_tells_nothing(tmp_path: Path) -> None:
    named = NAMED.replace('"Own"', '"own"').replace('"Other"', "sorted(KINDS)")
    main = CHOSEN.format("sets.of(sys.argv[1], 8)")
    assert "main_process_first" not in project(tmp_path, main=main, sets=SETS + named)["main"]


PACKAGED = """\
import json

import loads
import nets
from trainer import Trainer


def get_instance(module, name, config, *args):
    return getattr(module, config[name]["type"])(*args, **config[name]["args"])


def main(config):
    train_loader = get_instance(loads, "train", config)
    val_loader = get_instance(loads, "val", config)
    model = get_instance(nets, "arch", config, train_loader.dataset.tensors[0].shape[1])
    Trainer(model, train_loader, val_loader).train()


if __name__ == "__main__":
    main(json.load(open("config.json")))
"""
VALIDATES = """\
import torch
import torch.nn.functional as F
from torch import nn


class Trainer:
    def __init__(self, model, train_loader, val_loader):
        self.model = nn.DataParallel(model)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.train_loader, self.val_loader = train_loader, val_loader
        self.best = 1e9

    def train(self):
        for epoch in range(6):
            for x, y in self.train_loader:
                self.optimizer.zero_grad()
                loss = F.mse_loss(self.model(x), y)
                loss.backward()
                self.optimizer.step()
            value = self.validate()
            if value < self.best:
                self.best = value
                torch.save(self.model.state_dict(), "best.pt")
            else:
                break

    def validate(self):
        total = 0.0
        with torch.no_grad():
            for x, y in self.val_loader:
                total += F.mse_loss(self.model(x), y).item()
        return total / len(self.val_loader)
"""


def _packaged(folder: Path, loads: str, nets: str = "from .net import Net\n") -> dict[str, str]:
    for name, inner, text, beginning in (("loads", "plane", LOADERS, loads), ("nets", "net", NETS, nets)):
        package = folder / name
        package.mkdir()
        (package / "__init__.py").write_text(beginning)
        (package / f"{inner}.py").write_text(text)
    return project(folder, main=PACKAGED, trainer=VALIDATES)


@pytest.mark.parametrize("beginning", ["from .{} import {}\n", "from .{} import *\n"])
def test_what_a_package_only_passes_on_is_made_by_name_too(tmp_path: Path, beginning: str) -> None:
    """Loaders and the model come from one helper: the loaders are shared out as loaders, and the figure gathered."""
    texts = _packaged(tmp_path, beginning.format("plane", "Loader"), beginning.format("net", "Net"))
    made = "model, train_loader, val_loader = accelerator.prepare(model, train_loader, val_loader)\n"
    assert made in texts["main"]
    assert "unwrap_model(self.train_loader)" not in texts["trainer"]
    assert "unwrap_model(self.val_loader)" not in texts["trainer"]
    assert "output, y = self.accelerator.gather_for_metrics((self.model(x), y))\n" in texts["trainer"]


@pytest.mark.parametrize(
    "loads",
    [
        'def plane(**options):\n    return registry["plane"](**options)\n',
        "from .plane import Loader\n\n\ndef plane(**options):\n    return Loader(**options)\n",
    ],
)
def test_calls_of_one_helper_are_told_apart_where_no_class_is_known(tmp_path: Path, loads: str) -> None:
    """The model alone is prepared, and ACC402 says of the loader what is so."""
    texts = _packaged(tmp_path, loads)
    assert "    model = accelerator.prepare(model)\n" in texts["main"]
    assert "unwrap_model(self." not in texts["trainer"].replace("unwrap_model(self.model)", "")
    assert "gather_for_metrics" not in texts["trainer"]


def test_an_optimizer_that_a_model_chosen_by_name_makes_is_prepared(tmp_path: Path) -> None:
    own = "    def get_optimizer(self, rate):\n        return torch.optim.SGD(self.parameters(), rate)\n"
    both = "".join(
        f"class {name}(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        f"        self.fc = nn.Linear(8, 3)\n\n    def forward(self, x):\n        return self.fc(x)\n\n{own}\n\n"
        for name in ("Small", "Large")
    )
    main = """\
import sys

import torch
from torch.utils.data import DataLoader, TensorDataset

import zoo

model = getattr(zoo, sys.argv[1])()
optimizer = model.get_optimizer(0.1)
loader = DataLoader(TensorDataset(torch.randn(8, 8), torch.randint(0, 3, (8,))), batch_size=4)
for x, y in loader:
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
"""
    nets = "import torch\nfrom torch import nn\n\n\n" + both
    text = project(tmp_path, main=main, zoo="from nets import Small, Large\n", nets=nets)["main"]
    assert "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)" in text
