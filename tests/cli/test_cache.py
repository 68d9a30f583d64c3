"""What `check` found before is shown again exactly as long as nothing that it looked at has changed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import accelify
from accelify import files_read, linting
from accelify.cli import checking
from accelify.cli.checking import Asked, check_one
from accelify.project import Imports
from tests.cli.conftest import PLAIN, Run

LOOP = """\
from accelerate import Accelerator
import torch
from helper import shown

accelerator = Accelerator()
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer = accelerator.prepare(model, optimizer)
loader = accelerator.prepare(torch.utils.data.DataLoader(torch.zeros(8, 4)))
for x in loader:
    loss = model(x).mean()
    accelerator.backward(loss)
    optimizer.step()
shown(accelerator)
"""
LOUD = "def shown(accelerator):\n    print('done')\n"
QUIET = "def shown(accelerator):\n    accelerator.print('done')\n"


@pytest.fixture
def store(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path_factory.mktemp("store")
    monkeypatch.setenv("ACCELIFY_CACHE_DIR", str(folder))
    return folder


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(LOOP)
    (tmp_path / "helper.py").write_text(LOUD)
    (tmp_path / "plain.py").write_text(PLAIN)
    return tmp_path


def entries(store: Path) -> Iterator[Path]:
    return store.glob("check-*/*.json")


def test_what_was_found_is_not_looked_for_again(
    run: Run, project: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = run("check", project / "train.py", project / "plain.py")
    assert first.code == 1
    assert (store / ".gitignore").read_text().endswith("*\n")
    monkeypatch.setattr(linting, "lint", lambda *_: 1 / 0)
    assert run("check", project / "train.py", project / "plain.py") == first
    assert run("check", "--no-cache", project / "train.py").code == 2


def test_a_change_of_any_file_that_counts_is_seen(run: Run, project: Path, store: Path) -> None:
    script = project / "train.py"
    assert "helper.py:2" in run("check", script).out
    (project / "helper.py").write_text(QUIET)
    assert "helper.py" not in run("check", script).out
    # A package of the name comes before the file.
    (project / "helper").mkdir()
    (project / "helper" / "__init__.py").write_text("\n" + LOUD)
    assert "__init__.py:3" in run("check", script).out
    (project / "pyproject.toml").write_text('[tool.accelify]\nignore = ["ACC702"]\n')
    from accelify import selection
    from accelify.configuration import nearest_section

    nearest_section.cache_clear()
    selection.configured_at.cache_clear()
    assert "__init__.py" not in run("check", script).out


def test_a_folder_is_searched_again_for_new_files(run: Run, project: Path, store: Path) -> None:
    assert run("check", project / "plain.py").code == 1
    before = run("check", project).out
    assert run("check", project).out == before
    (project / "more.py").write_text(PLAIN)
    assert "more.py" in run("check", project).out
    (project / "more.py").unlink()
    assert run("check", project).out == before


@pytest.mark.parametrize("damage", ["empty", "cut", "noise", "folder"])
def test_damage_makes_it_slow_and_never_wrong(run: Run, project: Path, store: Path, damage: str) -> None:
    first = run("check", project)
    for file in list(entries(store)):
        data = file.read_bytes()
        if damage == "folder":
            file.unlink()
            file.mkdir()
        else:
            changed = data.replace(b"ACC", b"ACD") if damage == "noise" else data[: len(data) // 2]
            file.write_bytes(b"" if damage == "empty" else changed)
    assert run("check", project) == first


def test_where_nothing_can_be_written_all_goes_on(
    run: Run, project: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = run("check", project)
    occupied = store / "file"
    occupied.write_text("")
    monkeypatch.setenv("ACCELIFY_CACHE_DIR", str(occupied))
    assert run("check", project) == first
    assert run("check", "--cache-dir", "/proc/none", project) == first


def test_each_version_has_its_answers(
    run: Run, project: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = run("check", project)
    monkeypatch.setattr(accelify, "__version__", "0.0.0")
    monkeypatch.setattr(linting, "ALREADY_DISTRIBUTED", "ACC702")
    other = run("check", project / "train.py")
    assert "ACC702" not in other.out
    monkeypatch.undo()
    monkeypatch.setenv("ACCELIFY_CACHE_DIR", str(store))
    assert run("check", project) == first
    assert len(list(store.glob("check-*"))) == 2


def test_runs_at_once_and_a_killed_one_leave_it_right(project: Path, store: Path) -> None:
    command = [sys.executable, "-m", "accelify", "check", str(project)]

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)

    alone = subprocess.run([*command, "--no-cache"], capture_output=True, check=False).stdout
    assert alone
    several = [start() for _ in range(3)]
    several[0].kill()
    several[0].communicate()
    assert [one.communicate()[0] for one in several[1:]] == [alone, alone]
    last = start()
    assert last.communicate()[0] == alone


def test_nothing_is_looked_at_that_is_not_noted(
    project: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever asks the disk in another way would be shown old findings."""
    asked: set[str] = set()
    top = str(project)

    def note(place: object) -> None:
        if isinstance(place, (str, os.PathLike)) and os.fspath(place).startswith(top):
            asked.add(os.fspath(place))

    on = True

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        if on and event in ("open", "os.listdir", "os.scandir"):
            note(arguments[0])

    sys.addaudithook(hook)
    stat = os.stat

    def noted_stat(path: object, *args: object, **kwargs: object) -> object:
        note(path)
        return stat(path, *args, **kwargs)  # type: ignore[call-overload]

    (project / "deep").mkdir()
    (project / "deep" / "other.py").write_text("from plain import model\nmodel.load_state_dict(x)\n")
    for name in ("train.py", "plain.py"):
        asked.clear()
        with files_read.looking() as looks:
            monkeypatch.setattr(os, "stat", noted_stat)
            found = check_one(project / name, Asked(named=frozenset({project / name})), Imports(), None)
            monkeypatch.setattr(os, "stat", stat)
        assert found.findings
        noted = {place for _, place in looks.questions}
        # pyproject.toml is a part of the key.
        assert {one for one in asked if not one.endswith("pyproject.toml")} <= noted
        assert asked
    on = False


@pytest.mark.parametrize("way", ["fork", "spawn"])
def test_several_processes_find_the_same(
    run: Run, project: Path, store: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    for number in range(3):
        (project / f"more{number}.py").write_text(PLAIN)
    monkeypatch.setattr(checking, "_SEVERAL", 1_000)
    alone = run("check", "--no-cache", project)
    monkeypatch.setattr(checking, "_SEVERAL", 2)
    monkeypatch.setattr(checking, "_WAY", way)
    assert run("check", project) == alone
    assert run("check", project) == alone
