"""The examples are converted whole, and say the same afterwards."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from accelify.cli.main import main

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_it_is_converted_whole_and_prints_the_same(example: Path, tmp_path: Path) -> None:
    for name in ("plain", "converted"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "train.py").write_text(example.read_text())
    with pytest.raises(SystemExit) as stop:
        main(["convert", "--quiet", str(tmp_path / "converted" / "train.py")])
    assert stop.value.code == 0
    plain, converted = (_run(tmp_path / name) for name in ("plain", "converted"))
    assert plain
    assert converted == plain
    files = [{path.name for path in (tmp_path / name).rglob("*.pt")} for name in ("plain", "converted")]
    assert files[0] == files[1] != set()


def test_the_list_names_every_one() -> None:
    named = re.findall(r"^\| `(\S+\.py)`", (ROOT / "examples/README.md").read_text(), re.MULTILINE)
    assert sorted(named) == [path.name for path in EXAMPLES]


def _run(folder: Path) -> str:
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "ACCELIFY_USE_CPU": "true",
        "CUDA_VISIBLE_DEVICES": "",
    }
    done = subprocess.run(
        [sys.executable, "train.py"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    return done.stdout
