"""Which settings `accelify check` takes, and which files it looks at."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import PLAIN, Run

LOOP = "import torch\nloss.backward()\n"


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
    ("files", "code", "shown"),
    [
        ({"train.py": LOOP}, 0, "No findings of ACC716 in 1 script."),
        ({"train.py": "x = 1\n"}, 0, "No training scripts found."),
        # Those that cannot be read are not counted.
        ({"train.py": LOOP, "torn.py": f"{LOOP}def f(:\n"}, 1, "No findings of ACC716 in 1 script."),
        ({"torn.py": f"{LOOP}def f(:\n"}, 1, ""),
        (
            {"made/train.py": LOOP, ".gitignore": "made/\n"},
            0,
            "No training scripts found.\r\nleft out, as Git ignores it (name a file to look at it): made/train.py",
        ),
    ],
)
def test_a_terminal_gets_a_line_where_nothing_is_found(
    files: dict[str, str], code: int, shown: str, tmp_path: Path
) -> None:
    import pty

    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "accelify", "check", "--select", "ACC716", "."]
    around = {**os.environ, "ACCELIFY_CACHE_DIR": str(tmp_path / "c")}
    done = subprocess.run(
        command, stdout=theirs, stderr=subprocess.PIPE, cwd=tmp_path, env=around, check=False
    )
    assert done.returncode == code
    os.set_blocking(ours, False)
    said = b""
    with contextlib.suppress(BlockingIOError):
        said = os.read(ours, 1000)
    os.close(theirs)
    assert said.decode().strip() == shown
    os.close(ours)
