"""What the README shows is what the tool does."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from accelify.cli.main import COMMANDS
from accelify.conversion import ConvertOptions
from accelify.convert import convert_source
from accelify.source import Source
from accelify.transforms import TRANSFORMS
from tests.cli.conftest import PLAIN

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def test_the_change_it_shows_is_the_one_that_convert_makes() -> None:
    found = re.search(r"```diff\n(.*?)```", README, re.DOTALL)
    assert found is not None
    lines = found[1].splitlines()
    old, new = ("".join(f"{line[1:]}\n" for line in lines if line[:1] in ("", " ", sign)) for sign in "-+")
    conversion = convert_source(Source.from_text(old), ConvertOptions())
    assert (conversion.status, conversion.remaining) == ("converted", [])
    assert conversion.new_text == new


def test_its_commands_name_what_is_there() -> None:
    for path in re.findall(r"fixtures/\S+\.py|\]\(([\w./-]+)\)", README):
        assert not path or (ROOT / path).exists(), path
    for name in re.findall(r"^ {4}accelify (\w+)", README, re.MULTILINE):
        assert name in COMMANDS
    install, test = re.findall(r"```sh\n(.*?)\n```", README, re.DOTALL)
    assert install.count("-c constraints.txt") == test.count("-c constraints.txt") == 1


def test_the_transform_in_contributing_works(monkeypatch: pytest.MonkeyPatch) -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    found = re.search(r"```python\n(.*?)```", text, re.DOTALL)
    assert found is not None
    module: dict[str, Any] = {}
    exec(found[1], module)
    monkeypatch.setattr("accelify.convert.TRANSFORMS", (*TRANSFORMS, module["transform"]))
    script = (
        PLAIN.replace("import torch\n", "import webbrowser\nimport torch\n", 1) + "webbrowser.open('x')\n"
    )
    conversion = convert_source(Source.from_text(script), ConvertOptions())
    assert conversion.new_text.endswith("if accelerator.is_main_process:\n    webbrowser.open('x')\n")
    assert "ACC299" in [finding.code for finding in conversion.applied]
