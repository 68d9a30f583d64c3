"""What a script leaves to other scripts in modules that it shares with them: functions, and moves that they need."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelify.conversion import Conversion
from accelify.convert import convert_paths

MAKER = """\
import torch
from torch import nn


class Maker:
    def __init__(self, model):
        self.model = model

    def refine(self, x):
        x = x.clone().requires_grad_()
        self.model(x).sum().backward()
        return x.grad
"""
TRAINER = """\
from torch import nn


class Trainer:
    def __init__(self, model, optimizer):
        self.model, self.optimizer = model, optimizer

    def step(self, x, y):
        loss = nn.functional.mse_loss(self.model(x), y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
"""
CONFIG = """\
from torch import nn

import maker
import trainer


def get_model(width, device=None):
    model = nn.Linear(width, 1)
    model = model.to(device)
    return model


def get_trainer(model, optimizer):
    return trainer.Trainer(model, optimizer)


def get_maker(model):
    return maker.Maker(model)


def get_best(model):
    return get_maker(model)
"""
TRAIN = """\
import torch
from torch.utils.data import DataLoader, TensorDataset

import config

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
data = TensorDataset(torch.randn(32, 4), torch.randn(32, 1))
model = config.get_model(4, device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
trainer = config.get_trainer(model, optimizer)
for x, y in DataLoader(data, batch_size=8, shuffle=True):
    trainer.step(x.to(device), y.to(device))
{end}
"""
SHOW = """\
import torch

import config

model = config.get_model(4, device="cpu")
print(config.get_best(model).refine(torch.ones(2, 4)))
"""


def written(folder: Path, end: str = "") -> Path:
    texts = {"maker": MAKER, "trainer": TRAINER, "config": CONFIG, "show": SHOW}
    for name, text in (texts | {"train": TRAIN.format(end=end)}).items():
        (folder / f"{name}.py").write_text(text)
    return folder / "train.py"


def converted(folder: Path, end: str = "") -> dict[str, Conversion]:
    found = {Path(str(one.source.path)).stem: one for one in convert_paths([written(folder, end)])}
    assert found["train"].status == "converted", found["train"].reason
    return found


def test_what_only_another_script_makes_stays_as_it_is(tmp_path: Path) -> None:
    found = converted(tmp_path)
    assert "maker" not in found
    assert "def get_maker(model):" in found["config"].new_text
    assert "def get_trainer(accelerator, model, optimizer):" in found["config"].new_text


def test_what_it_comes_to_is_converted(tmp_path: Path) -> None:
    found = converted(tmp_path, "grad = config.get_best(model).refine(x)")
    assert "self.accelerator.backward(" in found["maker"].new_text


def test_what_it_may_come_to_is_not_left_out(tmp_path: Path) -> None:
    for end in ("makers[0](model).refine(x)", "for make in makers:\n    make(model)"):
        (found, *_) = convert_paths([written(tmp_path, f"makers = [config.get_maker]\n{end}")])
        assert found.status == "refused"
    assert "`Maker.refine`, where backward is called" in str(found.reason)


def test_what_it_may_come_to_by_a_name_takes_no_argument_more(tmp_path: Path) -> None:
    text = converted(tmp_path, "getattr(config, 'get_' + str(device))(model)")["config"].new_text
    for head in ("get_trainer(model, optimizer", "get_maker(model", "get_best(model"):
        assert f"def {head}, accelerator=None):" in text


def test_a_model_is_moved_where_its_factory_is_told_to(tmp_path: Path) -> None:
    """For other scripts, which prepare nothing."""
    assert "    model = model.to(device)\n" in converted(tmp_path)["config"].new_text


def test_the_module_is_named_that_takes_the_accelerator(tmp_path: Path) -> None:
    for name, one in converted(tmp_path).items():
        (tmp_path / f"{name}.py").write_text(one.new_text)
    again = TRAIN.format(end="").replace("shuffle=True", "shuffle=False")
    (tmp_path / "again.py").write_text(again)
    (found,) = convert_paths([tmp_path / "again.py"])
    assert found.status == "refused"
    assert found.reason.startswith(f"its module {tmp_path / 'config.py'} is converted already")


TRAINERS = """\
class Base:
    def __init__(self, model):
        self.model = model

    def train(self, loader, optimizer):
        for x, y in loader:
            loss = self.loss(x, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


class Plain(Base):
    def loss(self, x, y):
        return (self.model(x) - y).abs().mean()


class Other:
    def __init__(self, model):
        self.model = model

    def train(self, loader, optimizer):
        for x, y in loader:
            loss = (self.model(x) - y).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
"""
ENTRY = """\
import torch
from torch.utils.data import DataLoader, TensorDataset

from trainers import Other, Plain

loader = DataLoader(TensorDataset(torch.randn(32, 4), torch.randn(32, 1)), batch_size=8, shuffle=True)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
{trainer}(model).train(loader, optimizer)
"""


@pytest.mark.parametrize(
    ("trainer", "trains"),
    [("Plain", (True, False)), ("{True: Plain}[True]", (True, False)), ("Other", (False, True))],
)
def test_a_base_class_is_left_alone_where_nothing_derived_from_it_is_made(
    tmp_path: Path, trainer: str, trains: tuple[bool, bool]
) -> None:
    """Its own name, which its subclass says, makes none."""
    (tmp_path / "trainers.py").write_text(TRAINERS)
    (tmp_path / "entry.py").write_text(ENTRY.format(trainer=trainer))
    entry, trainers = convert_paths([tmp_path / "entry.py"])
    assert entry.status == "converted", entry.reason
    base, _, other = trainers.new_text.partition("class Other")
    assert ("accelerator.backward(" in base, "accelerator.backward(" in other) == trains
