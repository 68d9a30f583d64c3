"""ACC118: the first GPU by its number, in modules that go on as they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelify.conversion import Conversion
from accelify.convert import convert_project
from accelify.source import Source
from tests.transforms.support import frame

FUNCTION = """\
import torch


def current_device():
    if torch.cuda.is_available():
        return torch.device("cuda:0")
    return torch.device("cpu")
"""
NOISE = """\
import torch
import places


class Noise:
    def __init__(self):
        self.device = places.current_device()

    def like(self, x):
        return torch.randn(x.shape).to(self.device)
"""
USED = "import torch\n\n\nclass Noise:\n    def __init__(self):\n        self.device = {made}\n"
NUMBERED = "torch.device('cuda:0' if torch.cuda.is_available() else 'cpu')"


def converted(folder: Path, ready: str = "noise = Noise()", **modules: str) -> list[Conversion]:
    for name, text in modules.items():
        (folder / f"{name}.py").write_text(text)
    script = frame(imports="from noise import Noise", ready=ready, batch="x, y = x.cuda(), y.cuda()")
    (folder / "train.py").write_text(script)
    found = convert_project(Source.read(folder / "train.py"))
    assert found[0].status == "converted", found[0].reason
    return found


def said(found: list[Conversion]) -> list[str]:
    return [f.message for f in found[0].remaining if f.code == "ACC118"]


def test_a_function_gives_other_modules_each_process_s_own(tmp_path: Path) -> None:
    found = converted(tmp_path, places=FUNCTION, noise=NOISE)
    (changed,) = found[1:]
    assert changed.new_text == FUNCTION.replace("cuda:0", "cuda")
    assert not said(found)


def test_what_it_only_gives_the_script_stays(tmp_path: Path) -> None:
    ready = "import places\ndevice = places.current_device()\nnoise = Noise()"
    plain = NOISE.replace("places.current_device()", "torch.device('cuda')")
    assert not converted(tmp_path, ready, places=FUNCTION, noise=plain)[1:]


def test_by_another_name_too(tmp_path: Path) -> None:
    named = FUNCTION.replace("return torch.device(", "device = torch.device(").replace(
        'device("cpu")\n', 'device("cpu")\n    return device\n'
    )
    (changed,) = converted(tmp_path, places=named, noise=NOISE)[1:]
    assert changed.new_text == named.replace("cuda:0", "cuda")


@pytest.mark.parametrize("made", [NUMBERED, "torch.zeros(3).to('cuda:0')", "torch.zeros(3, device='cuda:0')"])
def test_where_it_is_used(tmp_path: Path, made: str) -> None:
    text = USED.format(made=made)
    found = converted(tmp_path, noise=text)
    assert [one.new_text for one in found[1:]] == [text.replace("cuda:0", "cuda")]
    assert not said(found)


@pytest.mark.parametrize(
    "text",
    [
        USED.format(made=NUMBERED.replace(":0", ":1")),
        USED.format(made=NUMBERED) + "        self.first = str(self.device) == 'cuda:0'\n",
    ],
)
def test_another_one_and_one_that_is_asked_for_are_said(tmp_path: Path, text: str) -> None:
    found = converted(tmp_path, noise=text)
    assert not found[1:]
    assert len(said(found)) == 1


def test_nothing_is_done_for_the_cpu(tmp_path: Path) -> None:
    (tmp_path / "noise.py").write_text(NOISE)
    (tmp_path / "places.py").write_text(FUNCTION)
    (tmp_path / "train.py").write_text(
        frame(imports="from noise import Noise", ready="noise = Noise()\nstart = torch.zeros(1)")
    )
    (found,) = convert_project(Source.read(tmp_path / "train.py"))
    assert "Accelerator(cpu=True)" in found.new_text
