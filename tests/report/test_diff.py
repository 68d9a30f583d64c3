"""Diffs must be what `patch` takes, whatever the line ends and the encoding."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from accelify.report.diff import unified_diff
from accelify.source import Source
from tests.report.conftest import MadeConversion

TEXTS = {
    "last line without end": ("a\nb\nc", "a\nB\nc"),
    "end added": ("a\nb", "a\nb\n"),
    "end taken away": ("a\nb\n", "a\nb"),
    "windows": ("a\r\nb\r\nc\r\n", "a\r\nB\r\nc\r\n"),
    "mixed": ("a\r\nb\nc\n", "a\r\nb\nC\n"),
    "looks like a header": ("a\n-- b\n++ c\n", "a\nd\n-- e\n"),
    "form feed": ("a\n\x0cb\u2028c\n", "a\n\x0cb\u2028d\n"),
    "from nothing": ("", "a\n"),
}


@pytest.mark.skipif(shutil.which("git") is None, reason="git applies the diffs")
@pytest.mark.parametrize(("old", "new"), TEXTS.values(), ids=TEXTS)
@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
def test_git_applies_it(tmp_path: Path, old: str, new: str, encoding: str) -> None:
    if encoding == "latin-1":
        old, new = (text.replace("\u2028", "\xe9") for text in (old, new))
    path = tmp_path / "train.py"
    path.write_bytes(old.encode(encoding))
    diff = unified_diff(MadeConversion(Source(Path("train.py"), old, encoding), new))
    subprocess.run(["git", "apply", "--whitespace=nowarn", "-"], input=diff, cwd=tmp_path, check=True)
    assert path.read_bytes() == new.encode(encoding)


def test_nothing_changed_is_an_empty_diff() -> None:
    assert unified_diff(MadeConversion(Source.from_text("a\n"), "a\n")) == b""


def test_coloured_it_says_the_same() -> None:
    conversion = MadeConversion(Source.from_text("a\nb\nc"), "a\nB\nc")
    coloured = unified_diff(conversion, colour=True).decode()
    assert "\x1b[32m+B\x1b[0m\n" in coloured
    for code in ("\x1b[0m", "\x1b[1m", "\x1b[31m", "\x1b[32m", "\x1b[36m"):
        coloured = coloured.replace(code, "")
    assert coloured.encode() == unified_diff(conversion)
