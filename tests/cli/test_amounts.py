"""--quiet and --verbose, help pages at any width, hints at where options go, completion, and missing torch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

import pytest

from accelify.cli.main import COMMANDS
from accelify.runtime.launch.fields import FIELDS, SECTION_FIELDS
from tests.cli.conftest import PLAIN, Run
from tests.cli.test_written import LEFT


def test_help_never_cuts_the_name_of_an_option(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    page = run("launch", "--help").out
    for field in (*FIELDS, *SECTION_FIELDS):
        assert not field.help or f"--{field.name}" in page.split("\n") or f" --{field.name}" in page
    assert max(map(len, page.split("\n"))) <= 80
    assert "…" not in page
    assert "FSDP:" in page


@pytest.mark.parametrize("name", COMMANDS)
def test_help_needs_no_torch(name: str) -> None:
    program = (
        "import sys\n"
        "sys.modules['torch'] = None\n"
        "from accelify.cli.main import main\n"
        f"main([{name!r}, '--help'])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"accelify {name}" in done.stdout


@pytest.mark.parametrize("words", [["launch", "train.py"], ["verify", "train.py"], ["test"]])
def test_without_torch_one_sentence_says_how_to_install_it(words: list[str], tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PLAIN)
    program = (
        "import importlib.util as u; real = u.find_spec\n"
        "u.find_spec = lambda n, *a: None if n == 'torch' else real(n, *a)\n"
        "from accelify.cli.main import main\n"
        f"main({words!r})\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 2
    assert "torch" in done.stderr
    assert "[runtime]'" in done.stderr
    assert "bug in accelify" not in done.stderr


def test_options_of_the_script_get_a_hint(run: Run) -> None:
    outcome = run("launch", "--lr", "0.1", "train.py")
    assert outcome.code == 2
    assert "No such option: --lr" in outcome.err
    assert "go after its name" in outcome.err


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (("launch", "--num_process", "2", "train.py"), "Did you mean --num_processes?"),
        (("convert", "--dif", "train.py"), "Did you mean --diff?"),
    ],
)
def test_an_option_that_is_nearly_right_is_named(run: Run, words: tuple[str, ...], meant: str) -> None:
    outcome = run(*words)
    assert outcome.code == 2
    assert meant in outcome.err
    assert "go after its name" not in outcome.err


def test_an_interrupted_command_says_so(run: Run, plain: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr("accelify.cli.convert.collect", interrupt)
    outcome = run("convert", plain)
    assert (outcome.code, outcome.err) == (130, "accelify: interrupted.\n")


def test_the_name_of_a_module_gets_a_hint(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    outcome = run("verify", "package.train")
    assert outcome.code == 2
    assert "accelify verify -m package.train" in outcome.err


def test_quiet_convert_prints_only_what_is_left(run: Run, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(LEFT)
    outcome = run("convert", "--quiet", str(script))
    assert [line.split(" ")[1] for line in outcome.out.splitlines()] == ["ACC701"]
    script.write_text(PLAIN.replace("    print(epoch, loss.item())  # the last batch's\n", ""))
    assert run("convert", "-q", str(script)).out == ""


def test_verbose_convert_gives_the_reason_of_every_edit(run: Run, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(PLAIN)
    shown = run("convert", "--verbose", "--diff", str(script)).err
    assert f"{script}:16:9: ACC712" in shown


def test_quiet_check_has_no_total(run: Run, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(PLAIN)
    assert "findings," in run("check", str(script)).out
    quiet = run("check", "--quiet", str(script))
    assert "ACC712" in quiet.out
    assert "findings," not in quiet.out
    assert f"checking {script}:" in run("check", "--verbose", str(script)).err
    assert run("check", "-q", "-v", str(script)).code == 2


@pytest.mark.parametrize(
    ("line", "expected"), [("accelify che", "check"), ("accelify check --stat", "--statistics")]
)
def test_bash_completes_commands_and_their_options(line: str, expected: str) -> None:
    environment = {
        **os.environ,
        "_ACCELIFY_COMPLETE": "complete_bash",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(line.split()) - 1),
    }
    program = "from accelify.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, env=environment
    )
    assert done.stdout.split() == [expected]
