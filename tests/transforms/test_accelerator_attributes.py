"""Functions of other modules that are called beside an object which keeps the Accelerator."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelify.convert import convert_project, convert_source
from accelify.proving import entries_of, prove
from accelify.source import Source

AGENT = """\
import torch
from torch import nn
from helper import Base, draw


class Agent(Base):
    def __init__(self):
        self.net = nn.Linear(4, 2)
        self.optimizer = torch.optim.Adam(self.net.parameters())

    def learn(self, x):
        loss = self.net(x).pow(2).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


"""
HELPER = """\
import matplotlib.pyplot as plt
import numpy as np
import torch


def draw(values):
    plt.plot(np.array(values))
    plt.savefig("a.png")


class Base:
    def keep(self):
        torch.save([1], "a.pt")
"""


def beside(folder: Path, body: str) -> tuple[str, list[str]]:
    """What becomes of lines behind the class, and the findings about what is written elsewhere."""
    (folder / "helper.py").write_text(HELPER)
    (folder / "main.py").write_text(AGENT + body)
    (conversion,) = convert_project(Source.read(folder / "main.py"))
    assert conversion.status == "converted", conversion.reason
    (folder / "main.py").write_text(conversion.new_text)
    again = convert_project(Source.read(folder / "main.py"))[0]
    assert again.new_text == conversion.new_text
    left = [f.message for f in conversion.remaining if f.code == "ACC210"]
    return conversion.new_text.rpartition("return loss.item()\n\n\n")[2], left


def test_they_are_called_by_the_main_process_alone(tmp_path: Path) -> None:
    text, left = beside(
        tmp_path,
        "agent = Agent()\nfor i in range(3):\n    agent.learn(torch.randn(1, 4))\n    draw([i])\nagent.keep()\n",
    )
    assert "    if agent.accelerator.is_main_process:\n        draw([i])\n" in text
    assert "\nif agent.accelerator.is_main_process:\n    agent.keep()\n" in text
    assert not left


def test_before_the_object_is_made_it_is_only_said(tmp_path: Path) -> None:
    text, left = beside(tmp_path, "draw([1])\nagent = Agent()\nagent.learn(torch.randn(1, 4))\n")
    assert text.startswith("draw([1])\nagent = Agent()\n")
    assert ["the Accelerator is not known there" in message for message in left] == [True]


LEARNER = """\
import torch
from torch import nn


class Learner:
    def __init__(self, cuda):
        self.device = torch.device("cuda" if cuda else "cpu")
        self.model = nn.Linear(4, 2).to(self.device)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def update(self, x, y):
        x, y = x.to(self.device), y.to(self.device)
        loss = nn.functional.cross_entropy(self.model(x), y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()

    def save(self, path):
        torch.save(self.model.state_dict(), path)
"""
TRAIN = """\
import logging
import os
from shutil import copyfile
import torch
from learner import Learner


def setup():
    log = logging.getLogger(__name__)
    log.addHandler(logging.FileHandler("log.txt"))
    return log


def keep():
    copyfile("last.pt", "kept.pt")


def main():
    log, cuda = setup(), torch.cuda.is_available()
{early}
{made}
    batches = [(torch.randn(8, 4), torch.randint(2, (8,))) for _ in range(4)]
    for epoch in range(2):
        for x, y in batches:
            learner.update(x, y)
        log.info("epoch %d", epoch)
        print("done")
        learner.save("last.pt")
        copyfile("last.pt", "best.pt")


main()
"""
MADE = {
    "once": "    learner = Learner(cuda)",
    "in either branch": "    if 1:\n        learner = Learner(cuda)\n    else:\n        learner = Learner(cuda)",
}


def trained(folder: Path, made: str, early: str = "") -> tuple[dict[str, str], list[tuple[str, str]]]:
    """What becomes of the files, and what is left to a person."""
    (folder / "learner.py").write_text(LEARNER)
    (folder / "train.py").write_text(TRAIN.format(made=made, early=early))
    texts: dict[str, str] = {}
    left = []
    for conversion in convert_project(Source.read(folder / "train.py")):
        assert conversion.status == "converted", conversion.reason
        texts[conversion.source.path.name] = conversion.new_text
        left += [(f.code, f.message) for f in conversion.remaining if f.code != "ACC402"]
    return texts, left


def proved(folder: Path) -> list[str]:
    """What the engine names of the script in a folder once it is converted."""
    conversions = convert_project(Source.read(folder / "train.py"))
    (entry,) = entries_of(conversions, [folder / "train.py"])
    prove(conversions, entry)
    return [f.message for c in conversions for f in c.remaining if f.code.startswith("ACC7")]


@pytest.mark.parametrize("made", MADE.values(), ids=MADE)
def test_what_stands_behind_the_object_asks_its_accelerator(tmp_path: Path, made: str) -> None:
    texts, left = trained(tmp_path, made)
    text = texts["train.py"]
    assert 'learner.accelerator.print("done")' in text
    assert 'if learner.accelerator.is_main_process:\n            copyfile("last.pt", "best.pt")' in text
    quiet = "        if not self.accelerator.is_main_process:\n            logging.disable(logging.INFO)\n"
    assert f"        self.accelerator = Accelerator(cpu=not cuda)\n{quiet}" in texts["learner.py"]
    assert not left


def test_what_stands_before_the_object_is_said(tmp_path: Path) -> None:
    early = '    log.info("start")\n    copyfile("a.txt", "b.txt")\n    keep()'
    _, left = trained(tmp_path, MADE["once"], early)
    assert not left
    said = [message.partition(";")[0] for message in proved(tmp_path)]
    assert "every process logs this: `log.info`" in said
    assert "every process writes a file here: `shutil.copyfile`" in said


def test_an_object_that_one_branch_makes_is_not_at_hand(tmp_path: Path) -> None:
    texts, left = trained(tmp_path, "    learner = Learner(cuda)\n    if 0:\n        learner = None")
    assert "learner.accelerator" not in texts["train.py"]
    assert not left
    found = proved(tmp_path)
    for said in ("every process prints this: `print`", "every process writes a file here: `shutil.copyfile`"):
        assert any(message.startswith(said) for message in found)


HANDED = """\
import logging
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from fit import Fit


def main():
    log = logging.getLogger(__name__)
    net = nn.Linear(4, 2)
    log.info("net %s", net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    loader = DataLoader(TensorDataset(torch.randn(32, 4), torch.randn(32, 2)), batch_size=8)
    fit = Fit(net, optimizer, log)
    fit.run(loader)
    log.info("done")


main()
"""
FIT = """\
from torch import nn


class Fit:
    def __init__(self, net, optimizer, log):
        self.net, self.optimizer, self.log = net, optimizer, log

    def run(self, loader):
        for x, y in loader:
            loss = nn.functional.mse_loss(self.net(x), y)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        self.log.info("loss %f", loss.item())
"""


@pytest.mark.parametrize("of_module", [False, True])
def test_an_object_that_is_handed_the_accelerator_does_not_make_it(tmp_path: Path, of_module: bool) -> None:
    script = HANDED
    if of_module:  # whose device is the Accelerator's
        device = 'DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")'
        script = script.replace("\ndef main", f"\n{device}\n\n\ndef main").replace(
            "(4, 2)", "(4, 2).to(DEVICE)"
        )
        script = script.replace("\nmain()", '\nif __name__ == "__main__":\n    main()')
    (tmp_path / "fit.py").write_text(FIT)
    (tmp_path / "train.py").write_text(script)
    found = convert_project(Source.read(tmp_path / "train.py"))
    text = next(c.new_text for c in found if c.source.path.name == "train.py")
    assert "if not accelerator.is_main_process:\n" in text
    assert ("\naccelerator = Accelerator()\n" in text) == of_module
    assert "    fit = Fit(accelerator, net, optimizer, log)\n" in text
    assert not [f.message for c in found for f in c.remaining if f.code == "ACC209"]


SETTINGS = """
import json
import torch
from torch.utils.data import DataLoader, TensorDataset


class Settings:
    def __init__(self):
        self.rate = 0.01
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    def save(self, path):
        with open(path, "w") as file:
            WRITE


def main():
    settings = Settings()
    settings.save("settings.json")
    net = torch.nn.Linear(4, 1).to(settings.device)
    opt = torch.optim.SGD(net.parameters(), lr=settings.rate)
    for x, y in DataLoader(TensorDataset(torch.ones(8, 4), torch.ones(8, 1)), batch_size=4):
        opt.zero_grad()
        torch.nn.functional.mse_loss(net(x.to(settings.device)), y.to(settings.device)).backward()
        opt.step()


main()
"""


@pytest.mark.parametrize(
    ("write", "is_stored"),
    [
        ("json.dump({k: str(v) for k, v in self.__dict__.items()}, file)", False),
        ("json.dump(vars(self), file, default=str)", False),
        ("json.dump({'rate': self.rate}, file)", True),
        ("json.dump({'rate': self.__dict__['rate']}, file)", True),
    ],
)
def test_an_object_that_is_written_with_all_its_attributes_does_not_get_the_accelerator(
    write: str, is_stored: bool
) -> None:
    found = convert_source(Source.from_text(SETTINGS.replace("WRITE", write), Path("train.py")))
    assert found.status == "converted"
    assert ("self.accelerator = accelerator" in found.new_text) is is_stored
