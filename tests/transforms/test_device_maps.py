"""Models that a library spreads over the GPUs of the machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelify.convert import convert_project
from accelify.source import Source
from tests.transforms.support import codes, convert, frame

IMPORTS = "import argparse\nfrom transformers import AutoModel\nargs = argparse.ArgumentParser().parse_args()"
MODEL = (
    "model = AutoModel.from_pretrained('small'{})\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)"
)


@pytest.mark.parametrize("value", ["'auto'", "'balanced'", "{'': 0}", "args.map", "'cuda:0'"])
def test_each_process_takes_its_device(value: str) -> None:
    found = convert(imports=IMPORTS, build=MODEL.format(f", device_map={value}"))
    assert "AutoModel.from_pretrained('small', device_map=accelerator.device)\n" in found.new_text
    assert "ACC126" in codes(found)


@pytest.mark.parametrize(
    "rest",
    ["", ", device_map=None", ", device_map='cpu'", ", device_map={'': 'cpu'}", ", device_map=judge.device"],
)
def test_what_is_on_one_device_stays(rest: str) -> None:
    found = convert(imports=IMPORTS, build=MODEL.format(rest))
    assert f"from_pretrained('small'{rest})\n" in found.new_text
    assert "ACC126" not in codes(found)


ELSEWHERE = """
from transformers import AutoModel


def make(name, places="auto"):
    return AutoModel.from_pretrained(name{rest})


class Net:
    def __init__(self, name):
        self.inner = make(name)
"""


@pytest.mark.parametrize(
    ("rest", "named"),
    [
        (', device_map="auto"', True),
        (', device_map={"": 0}', True),
        (', device_map="cpu"', False),
        (", device_map=None", False),
        (", device_map=places", False),
        ("", False),
    ],
)
@pytest.mark.parametrize("made", ["make('small')", "Net('small').inner"])
def test_a_function_of_another_module_is_named_where_it_is_called(
    tmp_path: Path, made: str, rest: str, named: bool
) -> None:
    (tmp_path / "nets.py").write_text(ELSEWHERE.replace("{rest}", rest))
    build = f"model = {made}\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)"
    (tmp_path / "train.py").write_text(frame(imports="from nets import Net, make", build=build))
    (conversion,) = convert_project(Source.read(tmp_path / "train.py"))
    assert conversion.status == "converted", conversion.reason
    said = [f.message for f in conversion.remaining if f.code == "ACC126"]
    assert bool(said) is named
    assert all("(nets.py, line 6)" in message for message in said)
