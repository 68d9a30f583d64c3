"""What a clone contains, which has to be made on Windows as well."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def test_names_of_files_are_plain() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    if listed.returncode:
        pytest.skip("no checkout of git's")
    names = [name for name in listed.stdout.decode().split("\0") if name]
    assert [name for name in names if not re.fullmatch(r"[\w.+@/-]+", name)] == []
