"""Objects of the project that keep a log open: only the main process has one where nothing else needs it."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from accelify.conversion import Conversion
from accelify.convert import convert_project
from accelify.source import Source
from tests.transforms.support import frame, place_of

LOG = """
class Log:
    def __init__(self, path, owner=None):
        self.owner = owner
        self.file = open(path, 'w')

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.file.close()

    def __setitem__(self, name, value):
        self.file.write(f'{name} {value}')

    def __call__(self, value):
        self.file.write(str(value))

    def row(self, value):
        self.file.write(str(value))
"""
# A trainer and its log, each in a module of its own.
TRAINER = """
import torch
from torch.utils.data import DataLoader, TensorDataset


class Trainer:
    def __init__(self, model, log=None):
        self.log = log
        self.model = model
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.loader = DataLoader(TensorDataset(torch.randn(32, 3)), batch_size=4, shuffle=True)

    def train(self):
        for i, (x,) in enumerate(self.loader):
            self.optimizer.zero_grad()
            loss = self.model(x).pow(2).mean()
            loss.backward()
            self.optimizer.step()
            self.log.row(loss.item())

    def figure(self):
        self.model.eval()
        total = 0
        with torch.no_grad():
            for (x,) in self.loader:
                total += self.model(x).pow(2).sum().item()
        return total
"""


def converted(folder: Path, helper: str, **snippets: str) -> Conversion:
    (folder / "helper.py").write_text(helper)
    (folder / "train.py").write_text(frame(imports="from helper import *", **snippets))
    (conversion,) = convert_project(Source.read(folder / "train.py"))
    assert conversion.status == "converted", conversion.reason
    return conversion


def project(folder: Path, log: str, main: str) -> tuple[str, str, list[str]]:
    """The texts of the main script and the trainer's module, and the findings about logs that are left."""
    texts = {"logs": log, "trainer": TRAINER, "main": textwrap.dedent(main)}
    for name, text in texts.items():
        (folder / f"{name}.py").write_text(text)
    found = {c.source.path.stem: c for c in convert_project(Source.read(folder / "main.py"))}
    left = [f.message for c in found.values() for f in c.remaining if f.code == "ACC204"]
    return found["main"].new_text, found["trainer"].new_text, left


@pytest.mark.parametrize(
    "use",
    [
        "log.owner = model",
        "log.owner = log.owner or 1",
        "log['loss'] = 1",
        "with log:\n    n = 1",
        "del log.owner",
    ],
)
def test_what_no_guarded_call_uses_is_there_on_every_process(tmp_path: Path, use: str) -> None:
    conversion = converted(tmp_path, LOG, ready="log = Log('a')", epoch="log.row(1)", end=use)
    assert place_of(conversion.new_text, "ready") == "log = Log('a')"
    (said,) = [f.message for f in conversion.remaining if f.code == "ACC204"]
    assert "`Log`" in said


def test_what_the_main_process_alone_sets_does_not_matter(tmp_path: Path) -> None:
    end = "log.row(1)\nlog.row(2)"
    conversion = converted(tmp_path, LOG, ready="log = Log('a')", end=end)
    assert place_of(conversion.new_text, "ready") == "log = Log('a') if accelerator.is_main_process else None"


MAIN = """
from torch import nn
from logs import Log
from trainer import Trainer

model = nn.Linear(3, 1)
{start}
trainer.train()
"""
GIVEN = {
    "made with it": "trainer = Trainer(model)\ntrainer.log = Log('a', trainer)",
    "handed over": "log = Log('a')\ntrainer = Trainer(model, log)",
}


@pytest.mark.parametrize("start", GIVEN.values(), ids=GIVEN)
def test_a_log_that_comes_to_what_all_processes_do(tmp_path: Path, start: str) -> None:
    """`log.row(x)` calls the trainer's evaluation, whose outputs are gathered: under a guard, the others would wait."""
    log = LOG.replace("self.file.write(str(value))", "print(value, self.owner.figure())")
    log += "\n    def belongs(self, owner):\n        self.owner = owner\n"
    start = start.replace("(model, log)", "(model, log)\nlog.belongs(trainer)")
    text, trainer, left = project(tmp_path, log, MAIN.format(start=start))
    assert "gather_for_metrics" in trainer
    assert "Log('a'" in text
    assert "else None" not in text
    assert "            self.log.row(loss.item())\n" in trainer
    assert "is_main_process" not in trainer
    assert left


@pytest.mark.parametrize("start", GIVEN.values(), ids=GIVEN)
def test_a_log_that_only_writes_is_the_main_process_s(tmp_path: Path, start: str) -> None:
    text, trainer, left = project(tmp_path, LOG, MAIN.format(start=start))
    assert ") if accelerator.is_main_process else None" in text
    assert (
        "            if self.accelerator.is_main_process:\n                self.log.row(loss.item())"
        in trainer
    )
    assert not left


SHOWN = """
class Log:
    def __init__(self, path):
        import visdom
        self.vis = visdom.Visdom(port=8097)
        self.path = path + "/log.txt"

    def plot(self, n):
        self.vis.line(X=[n], Y=[n])

    def row(self, n):
        print(n)
        with open(self.path, "a") as file:
            file.write(str(n))
"""


def test_uses_of_a_log_that_writes_files_too_stand_under_one_guard(tmp_path: Path) -> None:
    conversion = converted(tmp_path, SHOWN, ready="log = Log('a')", epoch="log.plot(1)\nlog.row(1)")
    guarded = "if accelerator.is_main_process:\n    log.plot(1)\n    log.row(1)"
    assert place_of(conversion.new_text, "epoch") == guarded
