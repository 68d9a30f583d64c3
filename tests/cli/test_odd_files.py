"""`accelify check` over whatever lies in a folder: one line for what cannot be read, and the rest goes on."""

from __future__ import annotations

import builtins
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import PLAIN, Run

WORDS = "import torch\nloss.backward()\noptimizer.step()\n"
DEEP = 20_000


@pytest.fixture
def odd(tmp_path: Path) -> Path:
    (tmp_path / "good.py").write_text(PLAIN)
    return tmp_path


READ = {
    "form_feed.py": ("\f" + WORDS + "\f\n").encode(),
    "latin.py": b"# -*- coding: latin-1 -*-\nname = '\xe9'\n" + WORDS.encode(),
    "mark.py": b"\xef\xbb\xbf" + WORDS.encode(),
    "windows.py": WORDS.replace("\n", "\r\n").encode(),
    "old_mac.py": WORDS.replace("\n", "\r").encode(),
    "huge.py": (WORDS + "data = '" + "x" * 3_000_000 + "'\n").encode(),
    "numbers.py": (WORDS + "data = [" + "1, " * 50_000 + "]\n").encode(),
    "many_digits.py": (WORDS + "data = 0x" + "f" * 50_000 + "\n").encode(),
    "sum.py": (WORDS + "total = " + " + ".join(["1"] * 900) + "\n").encode(),
    "empty.py": b"",
    "cells.ipynb": json.dumps(
        {"cells": [{"cell_type": "code", "source": WORDS, "metadata": {}}], "nbformat": 4, "metadata": {}}
    ).encode(),
}
UNREAD = {
    "binary.py": bytes(range(256)) * 50 + b"torch .backward(",
    "wide.py": WORDS.encode("utf-16") + b"torch .backward(",
    "undeclared.py": b"name = '\xe9'\n" + WORDS.encode(),
    "unknown.py": b"# -*- coding: klingon -*-\n" + WORDS.encode(),
    "deep.py": (WORDS + "x = " + "(" * DEEP + ")" * DEEP + "\n").encode(),
    "deep_lists.py": (WORDS + "x = " + "-" * DEEP + "1\n").encode(),
    "half.py": (WORDS + "def (\n").encode(),
    "old.py": (WORDS + "print 'done'\n").encode(),
    "digits.py": (WORDS + "x = " + "1" * 10_000 + "\n").encode(),
    "no_notebook.ipynb": b'{"cells": torch .backward(',
    "cells_of_text.ipynb": b'{"cells": "torch .backward(", "nbformat": 4}',
}


@pytest.mark.parametrize("name", READ)
def test_odd_files_are_read(run: Run, odd: Path, name: str) -> None:
    (odd / name).write_bytes(READ[name])
    outcome = run("check", odd)
    assert (outcome.code, outcome.err) == (1, "")
    assert "good.py" in outcome.out


@pytest.mark.parametrize("name", UNREAD)
def test_one_line_for_what_cannot_be_read(run: Run, odd: Path, name: str) -> None:
    (odd / name).write_bytes(UNREAD[name])
    outcome = run("check", odd)
    assert outcome.code == 1
    assert "good.py" in outcome.out
    assert len(outcome.err.splitlines()) <= 1
    named = run("check", odd / name)
    assert named.code == 2
    (line,) = named.err.splitlines()
    assert name in line
    assert "bug" not in line
    assert "itself failed" not in line


def test_what_is_no_file(run: Run, odd: Path) -> None:
    alone = run("check", odd)
    (odd / "around").symlink_to(odd)
    (odd / "self.py").symlink_to(odd / "self.py")
    (odd / "broken.py").symlink_to(odd / "nowhere.py")
    (odd / "folder.py").mkdir()
    os.mkfifo(odd / "pipe.py")
    (odd / "linked_pipe.py").symlink_to(odd / "pipe.py")
    place = socket.socket(socket.AF_UNIX)
    here = Path.cwd()
    os.chdir(odd)  # such names have to be short
    try:
        place.bind("socket.py")
    finally:
        os.chdir(here)
        place.close()
    assert run("check", odd) == alone


def test_names_that_are_no_text(odd: Path) -> None:
    os.rename(odd / "good.py", os.fsencode(odd) + b"/b\xffd.py")
    command = [sys.executable, "-m", "accelify", "check", "--no-cache", str(odd)]
    done = subprocess.run(command, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (1, b"")
    assert b"\\udcffd.py" in done.stdout


def test_what_may_not_be_read(run: Run, odd: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (odd / "secret.py").write_text(WORDS)
    (odd / "closed").mkdir()
    scan, opened = os.scandir, open

    # The user root may read everything.
    def opening(place: str | int | Path, *more: Any, **named: Any) -> Any:
        if str(place).endswith("secret.py"):
            raise PermissionError(13, "Permission denied")
        return opened(place, *more, **named)

    def scandir(place: str) -> object:
        if str(place).endswith("closed"):
            raise PermissionError(13, "Permission denied")
        return scan(place)

    monkeypatch.setattr(builtins, "open", opening)
    monkeypatch.setattr(os, "scandir", scandir)
    outcome = run("check", odd)
    assert outcome.code == 1
    assert "good.py" in outcome.out
    assert len(outcome.err.splitlines()) == 2
    assert run("check", odd) == outcome
    assert run("check", odd / "secret.py").code == 2


@pytest.mark.parametrize(
    "text",
    [
        '{"cells": null}',
        '{"cells": 3}',
        '{"cells": [{"cell_type": "code", "source": 5}]}',
        '{"cells": [{"cell_type": "code", "source": null}, {"cell_type": "code", "source": [1, "x"]}]}',
    ],
)
def test_a_broken_notebook_beside_a_script(run: Run, plain: Path, text: str) -> None:
    alone = run("check", plain)
    (plain.parent / "draft.ipynb").write_text(text)
    assert run("check", plain) == alone
    assert run("convert", "--diff", plain).code == 0


def test_what_the_converter_fails_on_is_not_clean(
    run: Run, plain: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise TypeError("a fault of the converter")

    monkeypatch.setattr("accelify.convert._convert", fails)
    outcome = run("check", plain)
    assert outcome.code == 2
    assert "itself failed on it (TypeError: a fault of the converter" in outcome.err
