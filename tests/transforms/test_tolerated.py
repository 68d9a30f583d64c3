"""What is made inside a `try`: whether the one who comes second goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelify.conversion import Conversion
from accelify.convert import convert_project
from accelify.source import Source
from tests.transforms.support import clean, convert, frame, named, place_of

MADE = "os.makedirs('out')"
MORE = "import argparse, errno, json, sys"
ENDS = {
    "exit": "except OSError as e:\n    print(e)\n    sys.exit(1)",
    "raise": "except (OSError, ValueError):\n    print('no folder')\n    raise",
    "another error": "except KeyboardInterrupt:\n    pass",
    "no handler": "finally:\n    print('made')",
    "the first that catches": "except ValueError:\n    pass\nexcept IOError:\n    exit()\nexcept Exception:\n    pass",
}
GOES_ON = {
    "pass": "except OSError:\n    pass",
    "print": "except:\n    print('there')",
    "a question": "except OSError as e:\n    if e.errno != errno.EEXIST:\n        raise",
    "its own error": "except os.error:\n    pass",
}


def early(lines: str) -> Conversion:
    """A conversion of a script that does something before there is an Accelerator."""
    return convert(setup=f"{lines}\nargs = argparse.ArgumentParser().parse_args()", imports=MORE)


def said(conversion: Conversion) -> list[str]:
    return [f.message for f in conversion.remaining if f.code == "ACC203"]


@pytest.mark.parametrize("handler", ENDS.values(), ids=ENDS)
@pytest.mark.parametrize("making", ["os.makedirs('out')", "os.mkdir('out')"])
def test_a_folder_whose_handler_ends_the_run_may_be_there(handler: str, making: str) -> None:
    text = early(f"try:\n    if not os.path.exists('out'):\n        {making}\n{handler}").new_text
    assert "        os.makedirs('out', exist_ok=True)\n" in text


@pytest.mark.parametrize("handler", GOES_ON.values(), ids=GOES_ON)
def test_a_folder_whose_handler_goes_on_stays(handler: str) -> None:
    conversion = early(f"try:\n    {MADE}\n{handler}")
    assert f"    {MADE}\n" in conversion.new_text
    assert not said(conversion)


def test_a_folder_that_a_handler_makes_may_be_there() -> None:
    text = early(f"try:\n    os.stat('out')\nexcept OSError:\n    {MADE}").new_text
    assert "os.makedirs('out', exist_ok=True)" in text


@pytest.mark.parametrize(
    "handler",
    [
        "except FileExistsError:\n    sys.exit()",
        "except OSError as e:\n    print(errno.EEXIST, e)\n    raise",
    ],
)
def test_a_folder_that_must_be_new_is_only_said(handler: str) -> None:
    conversion = early(f"try:\n    {MADE}\n{handler}")
    assert f"    {MADE}\n" in conversion.new_text
    assert any("os.makedirs" in message for message in named(conversion))


def test_a_file_that_is_written_in_an_attempt() -> None:
    conversion = early("try:\n    json.dump(1, open('a', 'w'))\nexcept OSError:\n    sys.exit()")
    assert any("every process writes a file" in message for message in named(conversion))


@pytest.mark.parametrize(("handler", "in_turns"), [("pass", True), ("raise", False)])
def test_a_helper_that_tries_to_make_a_folder(tmp_path: Path, handler: str, in_turns: bool) -> None:
    helper = f"""
    import os
    def made(path):
        try:
            os.makedirs(path)
        except OSError:
            {handler}
        return path
    """
    (tmp_path / "helper.py").write_text(clean(helper))
    (tmp_path / "train.py").write_text(frame(ready="folder = made('a')", imports="from helper import made"))
    (conversion,) = convert_project(Source.read(tmp_path / "train.py"))
    text = place_of(conversion.new_text, "ready")
    assert ("with accelerator.main_process_first():" in text) == in_turns
    found = [f.message for f in conversion.remaining if f.code == "ACC210"]
    assert ["where one has made its folder, the others can fail" in m for m in found] == [True] * (
        not in_turns
    )
