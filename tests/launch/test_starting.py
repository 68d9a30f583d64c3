"""What is seen while processes start."""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

import pytest

from accelify.runtime.launch import starting
from accelify.runtime.launch.starting import Starting


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("screen", [Terminal(), io.StringIO()], ids=["terminal", "pipe"])
def test_a_terminal_sees_at_once_that_processes_are_started(
    screen: io.StringIO, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(starting, "_PAUSE", 0.01)
    shown = Starting(2).__enter__()
    begun = screen.getvalue()
    assert begun == ("\raccelify launch: starting 2 processes\033[K" if screen.isatty() else "")
    shown.folder = tmp_path
    for number in (1, 2):
        (tmp_path / f"{number}.pid").touch()
    if screen.isatty():
        shown._thread.join(20)
        end = r"\raccelify launch: started 2 processes( \(\d+ s\))?\033\[K\n"
        assert re.search(f"{end}$", screen.getvalue())
    shown.stop()
    assert screen.getvalue().count("\n") == screen.isatty()
