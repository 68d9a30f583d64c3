"""Short command lines of `check` go without typer, and mean the same."""

from __future__ import annotations

import inspect
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from accelify.cli.check import check
from accelify.cli.check_run import Options, OutputFormat
from accelify.cli.quick import parsed
from tests.cli.conftest import PLAIN

SEVERAL = "from accelerate import Accelerator\n\naccelerator = Accelerator()\nprint(1)\n"


def test_both_ways_have_the_same_options() -> None:
    assert {*inspect.signature(check).parameters} == {"paths", *(one.name for one in fields(Options))}


def test_flags_and_paths(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ACCELIFY_CACHE_DIR", raising=False)
    words = ["--force-exclude", "a.py", "--output-format=json", "b"]
    options = Options(force_exclude=True, output_format=OutputFormat.JSON)
    assert parsed(words) == ([Path("a.py"), Path("b")], options)
    monkeypatch.setenv("ACCELIFY_CACHE_DIR", "c")
    assert parsed(["a.py"]) == ([Path("a.py")], Options(cache_dir=Path("c")))


@pytest.mark.parametrize(
    "words", [[], ["--help"], ["a.py", "--select", "ALL"], ["--fi", "a.py"], ["a.py", "--", "b"]]
)
def test_the_rest_is_for_typer(words: list[str]) -> None:
    assert parsed(words) is None


@pytest.mark.parametrize(
    ("text", "unneeded"),
    [
        ("import os\n", {"typer", "accelify.convert", "accelify.heap", "libcst", "multiprocessing"}),
        (SEVERAL, {"typer", "accelify.convert", "accelify.transforms", "libcst", "multiprocessing"}),
        (PLAIN, {"typer", "multiprocessing", "torch"}),
    ],
)
def test_what_is_not_needed_is_not_imported(tmp_path: Path, text: str, unneeded: set[str]) -> None:
    script = tmp_path / "train.py"
    script.write_text(text)
    program = (
        f"import sys\nsys.argv = ['accelify', 'check', '--no-cache', {str(script)!r}]\n"
        "from accelify.cli.entry import main\ntry:\n    main()\n"
        "except SystemExit:\n    print(*sys.modules, file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert unneeded.isdisjoint(done.stderr.split())
