"""Which settings `accelify check` takes, and which files it looks at."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import PLAIN, Run


@pytest.fixture
def configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ACCELIFY_CONFIG", "")  # what the command sets is taken back
    (tmp_path / "pyproject.toml").write_text('[tool.accelify]\nselect = ["ACC714"]\nexclude = ["old"]\n')
    for name in ("train.py", "old/train.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(PLAIN)
    return tmp_path


def codes(run: Run, *words: str | Path) -> set[str]:
    out = run("check", "--output-format", "concise", *words).out
    return {line.split(": ", 1)[1].split()[0] for line in out.splitlines()[:-1]}


def test_the_file_that_is_named_holds_alone(run: Run, configured: Path) -> None:
    assert codes(run, configured) == {"ACC714"}
    other = configured / "other.toml"
    other.write_text('[tool.accelify]\nselect = ["ACC712"]\n')
    assert codes(run, "--config", other, configured / "train.py") == {"ACC712"}


def test_without_any_file(run: Run, configured: Path) -> None:
    assert codes(run, "--isolated", configured / "train.py") > {"ACC712", "ACC714"}


def test_which_file_is_meant_is_asked(run: Run, configured: Path) -> None:
    missing = configured / "missing.toml"
    outcome = run("check", "--config", missing, configured)
    assert (outcome.code, outcome.err) == (2, f"accelify: --config {missing}: no such file.\n")
    outcome = run("check", "--isolated", "--config", configured / "pyproject.toml", configured)
    assert (outcome.code, "choose one" in outcome.err) == (2, True)


def test_files_that_are_looked_at(run: Run, configured: Path) -> None:
    assert run("check", "--show-files", configured).out == f"{configured / 'train.py'}\n"
    assert run("check", "--show-files", "--force-exclude", configured / "old" / "train.py").out == ""


@pytest.mark.skipif(sys.platform == "win32", reason="no pseudo-terminals")
@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("import torch\nloss.backward()\n", "No findings in 1 script."),
        ("x = 1\n", "No training scripts found."),
    ],
)
def test_a_terminal_gets_a_line_where_nothing_is_found(text: str, line: str, tmp_path: Path) -> None:
    import pty

    (tmp_path / "train.py").write_text(text)
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "accelify", "check", "--select", "ACC716", str(tmp_path)]
    subprocess.run(
        command, stdout=theirs, env={**os.environ, "ACCELIFY_CACHE_DIR": str(tmp_path / "c")}, check=True
    )
    os.close(theirs)
    assert os.read(ours, 1000).decode().strip() == line
    os.close(ours)
