"""Work grows with the lines of a script, and not with their square: counted, so that a busy machine says the same."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any

from accelify.convert import convert_source
from accelify.knowledge import Knowledge
from accelify.obligations import validate
from accelify.source import Source

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
speed, growth = import_module("convert_speed"), import_module("engine_growth")


def calls_of_convert(text: str) -> int:
    """How many functions are called for a conversion."""
    calls = 0

    def count(frame: FrameType, event: str, arg: Any) -> None:
        nonlocal calls
        calls += event == "call"

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        convert_source(Source.from_text(text, Path("train.py")))
    finally:
        sys.setprofile(before)
    return calls


def test_convert_calls_as_much_for_each_line() -> None:
    texts = [speed.script(lines) for lines in (150, 500, 3000)]
    _, few, many = (calls_of_convert(text) / text.count("\n") for text in texts)
    assert many < 1.3 * few


def test_the_engine_goes_as_often_through_each_line() -> None:
    texts = [growth.converted(growth.reached(length)) for length in (500, 1500)]
    few, many = (validate(text, None, Knowledge()).steps / text.count("\n") for text in texts)
    assert few < 1.2
    assert many < 1.1 * few
