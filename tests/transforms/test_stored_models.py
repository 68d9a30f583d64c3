"""ACC109: models of a DataParallel that an object of another module keeps, saves and loads."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelify.convert import convert_project
from accelify.source import Source
from tests.transforms.support import frame

KEEPER = """
import torch
class Keeper:
    def __init__(self, path, **more):
        self.path, self.more = path, more
        self.held = dict()
    def register(self, **models):
        {keeps}
    def note(self, **models):
        print(models)
    def save(self):
        torch.save({{name: m{part}.state_dict() for name, m in self.held.items()}}, self.path)
    def restore(self, state):
        for name, m in self.held.items():
            m{part}.load_state_dict(state[name])
    def load(self):
        self.restore(torch.load(self.path))
"""
TEST = """
import torch
from keeper import Keeper
model = torch.nn.Linear(4, 3)
{wrap}
keeper = Keeper("m.pt")
keeper.register(model=model)
keeper.load()
"""
WRAP = "model = torch.nn.DataParallel(model)"
TAKEN = "keeper = Keeper('m.pt')\nkeeper.register(model=model)\n"
LOADS = "`Keeper` loads weights into the model (keeper.py, line 15)"
SAVES = "hand it the model without the wrapper in test.py:7"


def _said(
    tmp_path: Path,
    *,
    keeps: str = "self.held.update(models)",
    part: str = "",
    wrap: str = WRAP,
    ready: str = TAKEN + "keeper.load()",
    build: str = "model = torch.nn.DataParallel(torch.nn.Linear(4, 3))",
    end: str = "keeper.save()",
) -> list[str]:
    texts = {"keeper": KEEPER.format(keeps=keeps, part=part), "test": TEST.format(wrap=wrap)}
    texts["train"] = frame(imports="from keeper import Keeper", build=build, ready=ready, end=end)
    for name, text in texts.items():
        (tmp_path / f"{name}.py").write_text(text)
    found = convert_project(Source.read(tmp_path / "train.py"))[0]
    assert found.status == "converted", found.reason
    said = [f.message for f in found.remaining if f.code == "ACC109"]
    return sorted(message.partition(": files")[0].rpartition("wants it: ")[2] for message in said)


@pytest.mark.parametrize("keeps", ["self.held.update(models)", "self.held = models"])
def test_what_the_object_saves_and_loads_is_said(tmp_path: Path, keeps: str) -> None:
    assert _said(tmp_path, keeps=keeps) == [LOADS, SAVES]


def test_it_loads_when_the_training_is_done(tmp_path: Path) -> None:
    assert _said(tmp_path, ready=TAKEN, end="keeper.save()\nkeeper.load()") == [SAVES]


def test_the_other_script_wraps_nothing(tmp_path: Path) -> None:
    assert _said(tmp_path, wrap="") == [LOADS]


@pytest.mark.parametrize(
    "other",
    [
        {"build": "model = torch.nn.Linear(4, 3)"},
        {"ready": TAKEN.replace("register", "note") + "keeper.load()"},
        {"ready": TAKEN.replace("model=model", "model=model.module") + "keeper.load()"},
        {"part": ".module"},
        {"keeps": "self.held.update({n.replace('module.', ''): m for n, m in models.items()})"},
    ],
)
def test_an_object_that_keeps_no_wrapper_is_not_said(tmp_path: Path, other: dict[str, str]) -> None:
    said = _said(tmp_path, **other)
    assert LOADS not in said
    assert SAVES not in said
