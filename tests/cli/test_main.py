"""The entry point: what it offers, and that it loads nothing heavy to say so."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import accelify
from accelify.cli.main import COMMANDS
from tests.cli.conftest import Run

HEAVY = (
    "torch",
    "libcst",
    "numpy",
    "accelify.convert",
    "accelify.analysis",
    "accelify.transforms",
    "accelify.runtime",
)


def test_help_names_every_command(run: Run) -> None:
    outcome = run("--help")
    assert outcome.code == 0
    for name in COMMANDS:
        assert name in outcome.out
    assert "Exit codes" in outcome.out


def test_help_loads_nothing_heavy() -> None:
    program = (
        "import sys\n"
        "from accelify.cli.main import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_a_help_page(run: Run, name: str) -> None:
    outcome = run(name, "--help")
    assert outcome.code == 0
    assert f"accelify {name}" in outcome.out


def test_version(run: Run) -> None:
    outcome = run("--version")
    assert (outcome.code, outcome.out) == (0, f"accelify {accelify.__version__}\n")


@pytest.mark.parametrize(
    "words", [["bogus"], ["convert"], ["convert", "--bogus"], ["check", "--output-format", "x", "."]]
)
def test_bad_usage_is_2(run: Run, words: list[str]) -> None:
    outcome = run(*words)
    assert outcome.code == 2
    assert b"Traceback" not in outcome.stderr


def test_a_bug_of_our_own_gets_a_sentence(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ACCELIFY_TRACEBACK", raising=False)
    monkeypatch.setattr("accelify.cli.main.build_app", lambda words: 1 / 0)
    outcome = run("check", ".")
    assert outcome.code == 2
    assert "a bug in accelify itself (ZeroDivisionError: division by zero)" in outcome.err
    assert "Traceback" not in outcome.err


def test_module_runs_as_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "accelify", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"accelify {accelify.__version__}\n"


def test_modules_of_the_working_folder_are_not_the_librarys(tmp_path: Path) -> None:
    (tmp_path / "logging").mkdir()
    (tmp_path / "logging" / "__init__.py").write_text("raise SystemExit('not this one')\n")
    (tmp_path / "train.py").write_text("import torch\n")
    command = [sys.executable, "-m", "accelify", "check", "--no-cache", "train.py"]
    assert subprocess.run(command, cwd=tmp_path, check=False).returncode == 0


def test_short_options(run: Run) -> None:
    assert run("-V").out == run("--version").out
    assert run("-h").out == run("--help").out
    assert run("check", "-h").out == run("check", "--help").out
    # What stands in brackets is no markup.
    assert "[tool.accelify]" in " ".join(run("check", "-h").out.split())


def test_help_pages_write_values_in_capitals(run: Run) -> None:
    for command, usage in (("merge-weights", "CHECKPOINT OUTPUT"), ("launch", "SCRIPT [ARGS...]")):
        said = run(command, "--help").out
        assert f"Usage: accelify {command} [OPTIONS] {usage}\n" in said
        assert not {"{", "<int>", "<str>", "<path>"} & set(said.replace("{", " { ").split())
    assert "'two' is not a whole number" in run("launch", "-n", "two", "train.py").err


def test_a_number_of_processes_that_is_none_is_named_as_it_may_be_typed(run: Run, plain: Path) -> None:
    outcome = run("verify", plain, "-n", "two")
    assert outcome.code == 2
    assert "--num-processes (-n) is 'two': give a number of processes" in outcome.err
