"""`accelify.codemod.ConvertCommand`: what libcst's command line does with one file is what `accelify convert` does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import libcst as cst
import pytest
from libcst.codemod import CodemodContext

from accelify.codemod import ConvertCommand
from accelify.conversion import ConvertOptions
from accelify.convert import convert_paths

FIXTURES = Path(__file__).parent.parent / "fixtures"
NAMES = sorted(p.parent.name for p in FIXTURES.glob("*/before.py"))


def converted(path: Path, **options: object) -> tuple[str, list[str]]:
    context = CodemodContext(filename=str(path))
    tree = cst.parse_module(path.read_bytes())
    return ConvertCommand(context, **options).transform_module(tree).code, context.warnings  # type: ignore[arg-type]


@pytest.mark.parametrize("name", NAMES[::4])
def test_a_file_is_converted_as_by_convert(name: str) -> None:
    path = FIXTURES / name / "before.py"
    (wanted,) = convert_paths([path])
    text, warnings = converted(path)
    assert text == wanted.new_text
    assert len(warnings) >= len(wanted.remaining)
    assert all(any(finding.message in warning for warning in warnings) for finding in wanted.remaining)


def test_what_the_engine_does_not_prove_is_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text((FIXTURES / "image_classification" / "before.py").read_text() + "\nos.system('ls')\n")
    path.write_text("import os\n" + path.read_text())
    assert any("ACC702 every process runs this command: `os.system`" in one for one in converted(path)[1])


def test_the_options_are_those_of_convert() -> None:
    path = FIXTURES / "image_classification" / "before.py"
    (wanted,) = convert_paths([path], ConvertOptions(batch_size="total", runtime="accelerate"))
    assert converted(path, batch_size="total", runtime="accelerate")[0] == wanted.new_text
    path = FIXTURES / "ddp_torchrun" / "before.py"
    assert "DistributedDataParallel" in converted(path)[0]
    assert "DistributedDataParallel" not in converted(path, replace_ddp=True)[0]


def test_a_script_that_goes_with_its_modules_is_left_alone() -> None:
    path = FIXTURES / "project" / "before" / "main.py"
    path = path if path.exists() else next((FIXTURES / "project" / "before").glob("*.py"))
    found = next(p for p in path.parent.glob("*.py") if len(convert_paths([p])) > 1)
    text, warnings = converted(found)
    assert text == found.read_text()
    assert any("converted together with" in warning for warning in warnings)


def test_what_is_not_for_this_python_is_said() -> None:
    context = CodemodContext(filename="train.py")
    tree = cst.parse_module("import torch\nloss.backward()\nreturn\n")
    assert ConvertCommand(context).transform_module(tree) is not None


def test_the_command_line(tmp_path: Path) -> None:
    before = FIXTURES / "image_classification" / "before.py"
    script = tmp_path / "train.py"
    script.write_bytes(before.read_bytes())
    command = [
        "-x",
        "--no-format",
        "--hide-progress",
        "accelify.codemod.ConvertCommand",
        "--batch-size",
        "per-process",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "libcst.tool", "codemod", *command, str(script)],
        capture_output=True, text=True, check=False, cwd=Path(__file__).parent.parent,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert script.read_bytes() == (before.parent / "after.py").read_bytes()
