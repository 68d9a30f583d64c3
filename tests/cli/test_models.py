"""`accelify rule --models`: rows are checked, and what is known of a function is shown."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.cli.conftest import Run


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_all_rows_are_checked(run: Run, folder: Path) -> None:
    (folder / "pyproject.toml").write_text(
        '[tool.accelify.models]\n"lab.log" = "none effect=log.write content=*"\n'
    )
    outcome = run("rule", "--models")
    assert outcome.code == 0
    assert re.fullmatch(
        r"1 row of \[tool\.accelify\.models\] and \d{4} in \d+ tables make sense\.\n", outcome.out
    )


def test_a_wrong_row_is_named(run: Run, folder: Path) -> None:
    (folder / "pyproject.toml").write_text('[tool.accelify.models]\n"lab.log" = "none effect=log"\n')
    outcome = run("rule", "--models")
    assert outcome.code == 2
    assert outcome.out == ""
    assert "lab.log: 'log' is no effect: write one of terminal.write" in outcome.err


def test_what_is_known_of_a_function(run: Run, folder: Path) -> None:
    outcome = run("rule", "--models", "torch.Tensor.mean")
    assert outcome.code == 0
    assert outcome.out.startswith("torch.Tensor.mean: the mean over an axis, or over everything.\n")
    assert re.search(r"^  axis +0/dim$", outcome.out, re.MULTILINE)
    assert re.search(r"^  stands in +torch\.models:\d+$", outcome.out, re.MULTILINE)


def test_methods_bases_and_json(run: Run, folder: Path) -> None:
    entry = json.loads(run("rule", "--models", "?.item", "--json").out)
    assert (entry["name"], entry["transfer"]) == ("?.item", "linear")
    entry = json.loads(run("rule", "--models", "torch.nn.Linear.to", "--json").out)
    assert (entry["name"], entry["place"]) == ("torch.nn.Module.to", "device")
    assert re.search(
        r"^  bases +torch\.nn\.Module$", run("rule", "--models", "torch.nn.Linear").out, re.MULTILINE
    )


def test_a_users_row_is_shown(run: Run, folder: Path) -> None:
    (folder / "pyproject.toml").write_text(
        '[tool.accelify.models]\n"lab.log" = "none effect=log.write content=*"\n'
    )
    outcome = run("rule", "--models", "lab.log")
    assert re.search(r"^  effect +log\.write$", outcome.out, re.MULTILINE)
    assert re.search(r"^  stands in +\[tool\.accelify\.models\]$", outcome.out, re.MULTILINE)


def test_an_unknown_function(run: Run, folder: Path) -> None:
    outcome = run("rule", "--models", "lab.log")
    assert outcome.code == 1
    assert outcome.err == (
        "accelify: nothing is known of lab.log: teach accelify in [tool.accelify.models], see docs/models.md.\n"
    )
