"""The report of a verification as people read it."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from accelify.verify.show import print_report


@pytest.mark.parametrize(("terminal", "lines"), [(True, 3), (False, 1)])
def test_sentences_are_set_in_where_a_terminal_breaks_them(terminal: bool, lines: int) -> None:
    text = io.StringIO()
    report: Any = SimpleNamespace(
        script="train.py", converted=SimpleNamespace(refused="no model " * 14 + "is seen")
    )
    print_report(report, Console(file=text, force_terminal=terminal, width=80))
    first, *rest = text.getvalue().splitlines()
    assert first.startswith("train.py was not converted")
    assert len([first, *rest]) == lines
    assert all(line.startswith("    ") and len(line) <= 80 for line in rest)
