"""A converted script finds its plain version."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from accelify.verify.session import VerifyError
from accelify.verify.subject import find_module, find_subject

PLAIN, CONVERTED = "import torch\n", "import torch\nfrom accelify.runtime import Accelerator\n"


def git(folder: Path, *words: str) -> None:
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", *words]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)


def test_a_plain_script_is_converted_by_the_converter(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PLAIN)
    assert find_subject(tmp_path / "train.py", None).converted is None


@pytest.mark.parametrize("turned", [False, True])
def test_two_files_are_told_apart_by_what_they_import(tmp_path: Path, turned: bool) -> None:
    plain, copy = tmp_path / "plain.py", tmp_path / "copy.py"
    plain.write_text(PLAIN)
    copy.write_text(CONVERTED)
    subject = find_subject(copy, plain) if turned else find_subject(plain, copy)
    assert subject.converted is not None
    if turned:
        assert subject.converted.originals == {copy: PLAIN.encode()}
    else:
        assert subject.converted.files == {plain: CONVERTED.encode()}
    place = str(subject.script.resolve())
    assert subject.converted.lines().named((place, 2)) == "copy.py line 2"
    with pytest.raises(VerifyError, match="both converted"):
        find_subject(copy, copy)


def test_the_newest_plain_version_in_history_is_found_with_the_modules_of_its_time(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    script, helper = tmp_path / "train.py", tmp_path / "helper.py"
    for text, other in ((PLAIN, "a = 0\n"), (PLAIN + "x = 1\n", "a = 1\n"), (CONVERTED, "a = 2\n")):
        script.write_text(text)
        helper.write_text(other)
        git(tmp_path, "add", ".")
        git(tmp_path, "commit", "-qm", "a")
    helper.write_text("a = 3\n")
    subject = find_subject(script, None)
    assert subject.converted is not None
    assert subject.converted.originals == {script: (PLAIN + "x = 1\n").encode(), helper: b"a = 1\n"}
    before, after = subject.converted.texts()[script]
    assert (before, after) == (PLAIN + "x = 1\n", CONVERTED)


def test_a_converted_script_without_a_plain_version_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(CONVERTED)
    with pytest.raises(VerifyError, match="--against FILE"):
        find_subject(tmp_path / "train.py", None)


def notebook(text: str) -> str:
    cells = [{"cell_type": "code", "source": text, "metadata": {}, "outputs": [], "execution_count": None}]
    return json.dumps({"nbformat": 4, "nbformat_minor": 4, "metadata": {"kernelspec": None}, "cells": cells})


def test_of_a_notebook_it_is_the_script_of_its_cells_that_runs(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    plain, script = tmp_path / "plain.ipynb", tmp_path / "train.ipynb"
    plain.write_text(notebook(PLAIN))
    for text in ("", "no notebook", notebook(PLAIN), notebook(CONVERTED)):
        script.write_text(text)
        git(tmp_path, "add", ".")
        git(tmp_path, "commit", "-qm", "a", "--allow-empty")
    for subject in (find_subject(script, None), find_subject(script, plain), find_subject(plain, script)):
        assert subject.converted is not None
        ((before, after),) = subject.converted.texts().values()
        assert (before, after) == (f"# %% cell 1\n{PLAIN}\n", f"# %% cell 1\n{CONVERTED}\n")


def test_modules_are_found_from_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "pk_for_verify"
    package.mkdir()
    for name in ("__init__", "train", "__main__"):
        (package / f"{name}.py").write_text("")
    monkeypatch.chdir(tmp_path)
    assert find_module("pk_for_verify.train") == package / "train.py"
    assert find_module("pk_for_verify") == package / "__main__.py"
    with pytest.raises(VerifyError, match="no such module"):
        find_module("pk_for_verify_absent")
