"""Colours and progress are for people at a terminal, and only there."""

from __future__ import annotations

import io
import re
import subprocess
import sys
from pathlib import Path

import pytest

from accelify.cli import terminal
from accelify.report.style import wrapped

PATHS = [Path("a.py"), Path("b.py"), Path("c.py")]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_appears_on_a_terminal_when_it_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(terminal, "PATIENCE", -1.0)
    assert list(terminal.followed(PATHS, 3, "converting")) == PATHS
    assert "converting" in screen.getvalue()


@pytest.mark.parametrize("screen", [Terminal(), io.StringIO()], ids=["terminal", "pipe"])
def test_no_progress_for_what_is_quick_or_piped(screen: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", screen)
    if not screen.isatty():
        monkeypatch.setattr(terminal, "PATIENCE", -1.0)
    assert list(terminal.followed(PATHS, 3, "converting")) == PATHS
    assert screen.getvalue() == ""


def test_colour_only_where_it_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert terminal.coloured(Terminal())
    assert not terminal.coloured(io.StringIO())
    monkeypatch.setenv("NO_COLOR", "1")
    assert not terminal.coloured(Terminal())
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "dumb")
    assert not terminal.coloured(Terminal())
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert terminal.coloured(io.StringIO())
    monkeypatch.setenv("NO_COLOR", "1")
    assert not terminal.coloured(io.StringIO())


def test_columns_wrap_on_a_narrow_terminal_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "48")
    rows = [("num_processes", "29500, or a free port here", "default (from devices)"), ("x", "1", "flag")]
    terminal.print_rows(rows)
    assert capsys.readouterr().out.splitlines() == [
        "num_processes  29500, or a free port here  default (from devices)",
        "x              1                           flag",
    ]
    monkeypatch.setattr(sys, "stdout", screen := Terminal())
    terminal.print_rows(rows, indent="  ")
    assert screen.getvalue().splitlines() == [
        "  num_processes  29500, or a     default (from",
        "                 free port here  devices)",
        "  x              1               flag",
    ]


def test_a_complaint_wraps_between_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    monkeypatch.setattr(sys, "stderr", screen := Terminal())
    terminal.complain("no such option as that")
    assert screen.getvalue() == "accelify: no such\n    option as that\n"


def test_a_reader_that_leaves_early_is_no_error() -> None:
    program = f"{sys.executable} -m accelify rule --json | head -c 1; echo ${{PIPESTATUS[0]}} >&2"
    done = subprocess.run(["bash", "-c", program], capture_output=True, text=True, check=True)
    assert "Traceback" not in done.stderr
    assert "bug" not in done.stderr


@pytest.mark.parametrize("width", [20, 40, 80])
def test_a_command_is_not_broken(width: int) -> None:
    command = "`pip install -c '/a folder/constraints.txt' '/a folder[runtime]'`"
    text = f"  torch is not installed, and nothing can be run without it: {command}. The rest of it is here."
    lines = wrapped(text, width).splitlines()
    assert any(command in line for line in lines)
    assert all(len(line) <= width for line in lines if "pip" not in line)
    assert " ".join(line.strip() for line in lines) == text.strip()


def test_a_lone_backquote_holds_nothing_together() -> None:
    assert wrapped("one ` two three", 10) == "one ` two\n    three"
    assert wrapped("two  blanks `a b` c", 80) == "two  blanks `a b` c"


def test_a_long_name_is_cut_and_the_count_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(terminal, "PATIENCE", -1.0)
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("TERM", "xterm")
    paths = [Path(f"{'a_long_name_' * 10}{number}.py") for number in range(3)]
    assert list(terminal.followed(paths, 3, "converting")) == paths
    shown = re.findall(r"converting[^\r\n]*", re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", screen.getvalue()))
    assert shown
    assert all(re.search(r"\d/3 \d:\d\d:\d\d a_long_name.*…$", line.rstrip()) for line in shown), shown
