"""The mirror looks like the script's surroundings, and nothing that is written in it reaches them."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from accelify.verify.mirror import Mirror, project_root

WRITES = """
import os, pathlib, shutil, subprocess, sys
open("fresh.txt", "w").write("fresh")
open("data/big.bin", "r+b").write(b"changed")
open("../data/shared.txt", "a").write("changed")
os.makedirs("data/deep/deeper/new", exist_ok=True)
pathlib.Path("data/deep/deeper/new/x").write_text("x")
os.rename("config.txt", "renamed.txt")
os.remove("data/small.txt")
shutil.rmtree("old")
os.chmod("../data/shared.txt", 0o600)
os.truncate("../data/huge.bin", 1)
subprocess.run([sys.executable, "-c", "open('by_child.txt', 'w').write('x')"], check=True)
here = os.path.dirname(os.path.realpath(__file__))
open(os.path.join(here, "beside.txt"), "w").write("x")
import helper
open(os.path.join(os.path.dirname(os.path.realpath(helper.__file__)), "beside_helper.txt"), "w").write("x")
print(open("data/small2.txt").read(), open("../data/shared.txt").read(), end="")
"""
RUNNER = """
import runpy, sys
from accelify.verify.guard import Guard
Guard(sys.argv[1], sys.argv[2].split(":")).install()
sys.dont_write_bytecode = True
sys.path[0] = sys.argv[4]
runpy.run_path(sys.argv[3], run_name="__main__")
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "work" / "project"
    (folder / "data" / "deep" / "deeper").mkdir(parents=True)
    (folder / "old" / "inner").mkdir(parents=True)
    (folder / "pyproject.toml").write_text("")
    (folder / "old" / "inner" / "kept.txt").write_text("kept")
    (folder / "data" / "big.bin").write_bytes(b"0" * 300_000)
    (folder / "data" / "small.txt").write_text("small")
    (folder / "data" / "small2.txt").write_text("small2 ")
    (folder / "config.txt").write_text("config")
    (folder / "helper.py").write_text("")
    (tmp_path / "work" / "data").mkdir()
    (tmp_path / "work" / "data" / "shared.txt").write_text("shared ")
    (tmp_path / "work" / "data" / "huge.bin").write_bytes(b"1" * 300_000)
    return folder


@contextlib.contextmanager
def unchanged(folder: Path) -> Iterator[None]:
    """Fails when anything below the folder is another thing afterwards."""
    before = state(folder)
    yield
    assert state(folder) == before


def state(folder: Path) -> dict[str, tuple[int, bytes]]:
    files = (path for path in sorted(folder.rglob("*")) if not path.is_dir())
    return {str(path): (path.stat().st_mode, path.read_bytes()) for path in files}


def run_in(mirror: Mirror, script: Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    place = mirror.path(script)
    words = [str(mirror.tree), ":".join(mirror.protected()), str(place), str(place.parent)]
    return subprocess.run(
        [sys.executable, "-c", RUNNER, *words],
        cwd=mirror.path(cwd),
        capture_output=True,
        text=True,
        timeout=100,
    )


def test_no_write_reaches_the_original(project: Path, tmp_path: Path) -> None:
    script = project / "train.py"
    script.write_text(WRITES)
    mirror = Mirror(script, project, {script: script.read_bytes()})
    with unchanged(tmp_path), contextlib.closing(mirror):
        done = run_in(mirror, script, project)
        assert done.stderr == ""
        assert done.stdout == "small2  shared changed"
        assert (mirror.path(project) / "data/deep/deeper/new/x").read_text() == "x"
        assert (mirror.path(project) / "by_child.txt").exists()
        assert not (mirror.path(project) / "old").exists()
    assert not mirror.home.exists()


def test_an_absolute_path_into_the_project_is_refused(project: Path, tmp_path: Path) -> None:
    script = project / "train.py"
    script.write_text(f"open({str(project / 'out.txt')!r}, 'w').write('x')")
    mirror = Mirror(script, project)
    with unchanged(tmp_path), contextlib.closing(mirror):
        done = run_in(mirror, script, project)
    assert "refuses to write beside the script" in done.stderr


def test_a_folder_beyond_the_limit_is_opened_up_on_demand(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("accelify.verify.mirror.ENTRIES", 1)
    script = project / "train.py"
    script.write_text("import os\nopen('data/deep/x', 'w').write('x')\nos.mkdir('data/deep/deeper/y')\n")
    mirror = Mirror(script, project)
    with unchanged(tmp_path), contextlib.closing(mirror):
        assert mirror.path(project / "data").is_symlink()
        assert run_in(mirror, script, project).stderr == ""
        assert (mirror.path(project) / "data/deep/deeper/y").is_dir()


def test_replaced_files_and_translated_arguments(project: Path) -> None:
    script = project / "train.py"
    script.write_text("original")
    mirror = Mirror(script, project / "data", {script: b"converted", project / "pkg" / "m.py": b"module"})
    with contextlib.closing(mirror):
        assert mirror.path(script).read_bytes() == b"converted"
        assert mirror.path(project / "pkg" / "m.py").read_bytes() == b"module"
        assert script.read_text() == "original"
        assert mirror.translate(f"--out={project}/out") == f"--out={mirror.path(project)}/out"
        assert mirror.translate("/elsewhere") == "/elsewhere"
        assert mirror.path(project / "data").is_dir()


def test_the_project_is_found_by_its_marks(project: Path) -> None:
    assert project_root(project / "data" / "deep") == project
    assert project_root(project.parent / "data") == project.parent / "data"
    assert project_root(Path(os.path.realpath(Path.home()))) == Path(os.path.realpath(Path.home()))
