"""Functions of modules that are not converted which ask what class a model is of."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelify.conversion import Conversion
from accelify.convert import convert_project
from accelify.source import Source
from tests.transforms.support import frame, place_of

NETS = """\
from torch import nn


class Net(nn.Linear):
    pass


def is_net(model):
    if isinstance(model, nn.DataParallel):
        model = model.module
    return isinstance(model, Net)


def same(model):
    return type(model) is Net


def run(model, x):
    if not isinstance(model, (Net, nn.Sequential)):
        raise ValueError("another")
    return model(x)


def minding(model):
    model = model.module if hasattr(model, "module") else model
    return isinstance(model, Net)


def of_any(model):
    return isinstance(model, nn.Module)
"""
BUILD = "model = nets.Net(4, 2)\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)"


def converted(folder: Path, build: str = BUILD, **places: str) -> Conversion:
    (folder / "nets.py").write_text(NETS)
    (folder / "train.py").write_text(frame(imports="import nets", build=build, **places))
    found = convert_project(Source.read(folder / "train.py"))[0]
    assert found.status == "converted", found.reason
    again = convert_project(Source.from_text(found.new_text, folder / "train.py"))[0]
    assert again.new_text == found.new_text
    return found


@pytest.mark.parametrize("name", ["is_net", "same"])
def test_who_only_asks_is_handed_the_bare_model(tmp_path: Path, name: str) -> None:
    text = converted(tmp_path, end=f"flat = nets.{name}(model)").new_text
    assert place_of(text, "end") == f"flat = nets.{name}(accelerator.unwrap_model(model))"


def test_who_runs_it_too_is_named(tmp_path: Path) -> None:
    found = converted(tmp_path, end="out = nets.run(model, torch.ones(1, 4))")
    (message,) = [f.message for f in found.remaining if f.code == "ACC208"]
    assert message.startswith("`run` asks `isinstance(model, (Net, nn.Sequential))` (nets.py, line 19)")
    assert "# TODO(accelify ACC715): `run` asks for the model's class" in found.new_text


@pytest.mark.parametrize("call", ["nets.minding(model)", "nets.of_any(model)", "nets.is_net(nets.Net(1, 1))"])
def test_who_knows_of_wrappers_or_asks_nothing_of_them_stays(tmp_path: Path, call: str) -> None:
    found = converted(tmp_path, end=f"flat = {call}")
    assert place_of(found.new_text, "end") == f"flat = {call}"
    assert [f for f in found.remaining if f.code == "ACC208"] == []


def test_before_prepare_the_model_is_bare(tmp_path: Path) -> None:
    first, _, second = BUILD.partition("\n")
    found = converted(tmp_path, build=f"{first}\nflat = nets.is_net(model)\n{second}")
    assert "flat = nets.is_net(model)" in found.new_text
