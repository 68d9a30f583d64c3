"""Lines that functions of other modules print: beside what they write, and by other functions than `print`."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from accelify.conversion import Conversion
from accelify.convert import convert_project
from accelify.findings import Severity
from accelify.source import Source
from tests.transforms.support import codes, frame, place_of, prints_by_all


def converted(folder: Path, helper: str, **snippets: str) -> Conversion:
    """A script beside `helper.py`, converted; only the script changes."""
    (folder / "helper.py").write_text("import os, pprint, sys\nimport torch\n" + textwrap.dedent(helper))
    (folder / "train.py").write_text(frame(imports="import helper", **snippets))
    (conversion,) = convert_project(Source.read(folder / "train.py"))
    return conversion


MADE = """
def get():
    if not os.path.exists("cache.pt"):
        print("made")
        torch.save(torch.zeros(3), "cache.pt")
    {line}
    return torch.load("cache.pt")
"""


def test_what_a_call_prints_that_the_main_process_does_first_is_said(tmp_path: Path) -> None:
    conversion = converted(tmp_path, MADE.format(line='print("read")'), ready="kept = helper.get()")
    assert "with accelerator.main_process_first():\n    kept = helper.get()" in conversion.new_text
    (said,) = [f for f in conversion.remaining if f.code == "ACC702"] if prints_by_all(conversion) else []
    assert (said.path, said.line, said.severity) == (str(tmp_path / "helper.py"), 8, Severity.INFO)


def test_lines_of_who_makes_it_alone_are_the_main_processs(tmp_path: Path) -> None:
    stopped = """
    def fetch(path):
        if os.path.exists(path):
            return
        print("made")
        torch.save(torch.zeros(3), path)

    def get():
        if not os.path.exists("cache.pt"):
            fetch("cache.pt")
        return torch.load("cache.pt")
    """
    assert not prints_by_all(converted(tmp_path, stopped, ready="kept = helper.get()"))
    always = stopped.replace("return\n        print", "pass\n        print")
    always = always.replace(
        'if not os.path.exists("cache.pt"):\n            fetch', "if True:\n            fetch"
    )
    assert prints_by_all(converted(tmp_path, always, ready="kept = helper.get()"))
    assert not prints_by_all(converted(tmp_path, MADE.format(line="pass"), ready="kept = helper.get()"))


def test_what_a_call_prints_that_writes_on_every_process_is_said_too(tmp_path: Path) -> None:
    helper = """
    def note(x):
        print("noted")
        torch.save(x, "x.pt")
        return x.mean()
    """
    conversion = converted(tmp_path, helper, epoch="mean = helper.note(x)\nx = x * mean")
    assert prints_by_all(conversion)
    assert "ACC210" in codes(conversion)


PRETTY = {
    "module": "def show(x):\n    pprint.pprint(x)\n",
    "object": "_pretty = pprint.PrettyPrinter()\n\n\ndef show(x):\n    _pretty.pprint(x)\n",
}


@pytest.mark.parametrize("helper", PRETTY.values(), ids=PRETTY)
def test_what_prettily_prints_is_called_by_the_main_process(tmp_path: Path, helper: str) -> None:
    conversion = converted(tmp_path, helper, ready="helper.show({'lr': 0.1})")
    guarded = "if accelerator.is_main_process:\n    helper.show({'lr': 0.1})"
    assert guarded in place_of(conversion.new_text, "ready")


@pytest.mark.parametrize(
    "body", ["pprint.pprint(x, held)", "pprint.pprint(x, stream=held)", "pprint.pformat(x)"]
)
def test_what_prints_into_a_stream_of_its_own_stays(tmp_path: Path, body: str) -> None:
    conversion = converted(tmp_path, f"def show(x, held=None):\n    {body}\n", ready="helper.show(3)")
    assert "is_main_process" not in conversion.new_text
