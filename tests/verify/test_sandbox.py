"""Whatever a script does in a trial run, every real file is afterwards what it was, and so is every process."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy
import pytest

from accelify.verify.nursery import Nursery
from accelify.verify.runs import Job, Run, execute

from .ways_out import SCRIPT, WAYS

pytestmark = pytest.mark.distributed
ROOT = Path(__file__).parents[2]
KINDS = ["namespaces", "redirected", "redirected-bare"]


@pytest.fixture(scope="module", params=KINDS)
def sandbox(request: pytest.FixtureRequest) -> Iterator[Nursery]:
    with Nursery(1, kind=request.param) as nursery:
        nursery.ready()
        if request.param == "namespaces" and nursery.why_not:
            pytest.skip(nursery.why_not)
        yield nursery


@pytest.fixture
def run(sandbox: Nursery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Run]:
    """Runs a text as `project/train.py`."""

    def run(text: str, *arguments: str, **options: object) -> Run:
        script = tmp_path / "project" / "train.py"
        script.parent.mkdir(exist_ok=True)
        script.write_text(text)
        monkeypatch.chdir(script.parent)
        return execute(Job(Path("train.py"), arguments, limit=300, **options), sandbox)  # type: ignore[arg-type]

    return run


@pytest.fixture
def bystander() -> Iterator[int]:
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process.pid
        assert process.poll() is None, "a process outside was ended"
        process.kill()


def furnish(place: Path) -> None:
    (place / "folder" / "inner").mkdir(parents=True)
    (place / "folder" / "inner" / "deep").write_text("deep")
    (place / "file").write_text("precious")
    (place / "data.bin").write_bytes(bytes(range(64)))
    numpy.save(place / "data.npy", numpy.arange(4.0))
    with sqlite3.connect(place / "data.db") as database:
        database.execute("create table t (a)")
    database.close()


def state(folder: Path) -> dict[str, tuple[object, ...]]:
    """Everything about every entry but the time of its last reading."""
    found: dict[str, tuple[object, ...]] = {}
    for path in [folder, *sorted(folder.rglob("*"))]:
        entry = path.lstat()
        content = path.read_bytes() if path.is_file() else os.readlink(path) if path.is_symlink() else None
        found[str(path)] = (entry.st_mode, entry.st_uid, entry.st_ino, entry.st_mtime_ns, entry.st_nlink, content,
                            tuple(os.listxattr(path, follow_symlinks=False)))  # fmt: skip
    return found


@contextmanager
def unchanged(folder: Path) -> Iterator[None]:
    before = state(folder)
    yield
    after = state(folder)
    wrong = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
    assert not wrong


def test_no_way_leads_out(run: Callable[..., Run], sandbox: Nursery, tmp_path: Path, bystander: int) -> None:
    places = {name: str(tmp_path / "real" / name) for name in WAYS}
    for place in places.values():
        furnish(Path(place))
    project = tmp_path / "project"
    project.mkdir()
    (project / "precious.txt").write_text("precious")
    order = tmp_path / "order.json"
    order.write_text(json.dumps(
        {"ways": WAYS, "places": places, "outside": bystander, "script": str(project)}
    ))  # fmt: skip
    (project / "train.py").write_text(SCRIPT)
    with unchanged(tmp_path):
        (project / "train.py").stat()
        done = execute_in(sandbox, project, (str(order),))
        answers = dict(line.split(" ", 2)[1:] for line in done.output.splitlines() if line.startswith("WAY "))
    assert "END" in done.output, done.output[-2000:]
    assert answers.keys() == WAYS.keys()
    print("\n".join(f"{name}: {answer}" for name, answer in answers.items()))
    if sandbox.kind == "namespaces":
        refused = {name for name, answer in answers.items() if answer != "went through"}
        assert refused <= {"proc-outside", "kill-outside"}
    else:
        for name, answer in answers.items():
            assert answer == "went through" or "Error" in answer or "SandboxRefusal" in answer, name


def execute_in(nursery: Nursery, folder: Path, arguments: tuple[str, ...]) -> Run:
    here = os.getcwd()
    os.chdir(folder)
    try:
        return execute(Job(Path("train.py"), arguments, limit=300), nursery)
    finally:
        os.chdir(here)


CHANGES = """
import os, shutil, sys
there = sys.argv[1]
open("fresh.txt", "w").write("fresh")
open(there + "/file", "a").write(" and more")
os.makedirs(there + "/made/deep")
open(there + "/made/deep/x", "w").write("x")
os.remove(there + "/data.bin")
shutil.rmtree(there + "/folder")
os.symlink("file", there + "/link")
open(there + "/data.npy", "rb").read()
print(open(there + "/file").read(), sorted(os.listdir(there)), os.path.exists(there + "/folder"))
"""


def test_changes_are_listed_with_their_content(run: Callable[..., Run], tmp_path: Path) -> None:
    there = tmp_path / "real"
    furnish(there)
    with unchanged(there):
        done = run(CHANGES, str(there))
    assert not done.failure
    assert "precious and more ['data.db', 'data.npy', 'file', 'link', 'made'] False" in done.output
    found = {change.path: change for change in done.changes}
    assert {path: change.kind for path, change in found.items()} == {
        str(tmp_path / "project" / "fresh.txt"): "file",
        f"{there}/file": "file",
        f"{there}/made": "folder",
        f"{there}/made/deep": "folder",
        f"{there}/made/deep/x": "file",
        f"{there}/data.bin": "removed",
        f"{there}/folder": "removed",
        f"{there}/link": "link",
    }
    assert found[f"{there}/file"].content.read_text() == "precious and more"
    assert os.readlink(found[f"{there}/link"].content) == "file"
    assert done.scratch is not None
    done.close()
    assert not done.scratch.home.exists()


def test_ranks_of_one_run_see_each_other_and_no_other_run(run: Callable[..., Run], tmp_path: Path) -> None:
    text = (
        "import os, sys, time, torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        f"place = {str(tmp_path / 'shared')!r}\n"
        "assert not os.path.exists(place)\n"
        "dist.barrier()\n"
        "if dist.get_rank() == 0: open(place, 'w').write('from 0')\n"
        "dist.barrier()\n"
        "assert open(place).read() == 'from 0'\n"
    )
    for _ in range(2):
        assert not run(text, processes=2).failure
    assert not (tmp_path / "shared").exists()


def test_the_converted_file_is_seen_in_place_of_the_original(run: Callable[..., Run], tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    helper = tmp_path / "project" / "helper.py"
    helper.write_text("NAME = 'original'\n")
    text = "import helper\nprint(helper.NAME, open(helper.__file__).read())"
    done = run(text, replaced={helper: b"NAME = 'copy'\n"})
    assert "copy NAME = 'copy'" in done.output
    assert done.changes == []
    assert helper.read_text() == "NAME = 'original'\n"
    assert done.texts[str(tmp_path / "project" / "train.py")] == text


def test_there_is_no_network_but_the_loopback(run: Callable[..., Run]) -> None:
    done = run(
        "import socket, urllib.request\n"
        "for call in (lambda: socket.create_connection(('192.0.2.1', 9), 5),\n"
        "             lambda: socket.getaddrinfo('example.com', 80),\n"
        "             lambda: urllib.request.urlopen('http://example.com', timeout=5)):\n"
        "    try:\n        call()\n"
        "    except OSError as error:\n        print('no:', error)\n"
        "with socket.create_server(('127.0.0.1', 0)) as server:\n"
        "    socket.create_connection(server.getsockname()).close()\n"
    )
    assert not done.failure, done.output
    assert done.output.count("no:") == 3
    assert "Network is unreachable" in done.output
    assert {event["address"] for event in done.ranks[0].events["network"]} == {
        "192.0.2.1:9",
        "example.com:80",
    }
    assert any("--allow-network" in note and "line 2" in note for note in done.notes)


def test_nothing_survives_a_run(run: Callable[..., Run], tmp_path: Path) -> None:
    mark = f"600.{os.getpid()}"
    text = (
        f"import subprocess, sys\nsubprocess.Popen(['setsid', 'sleep', '{mark}'], start_new_session=True)\n"
    )
    run(text)
    deadline = time.monotonic() + 3
    while (left := _running(mark)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not left


def _running(mark: str) -> list[str]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes()
        except OSError:
            continue
        if mark.encode() in command and process.name != str(os.getpid()):
            found.append(process.name)
    return found


def test_two_runs_go_side_by_side(sandbox: Nursery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "train.py"
    script.write_text("import os, sys, time\nassert not os.path.exists('mine')\nopen('mine', 'w').write(sys.argv[1])\n"
                      "time.sleep(1)\nassert open('mine').read() == sys.argv[1]\n")  # fmt: skip
    monkeypatch.chdir(tmp_path)
    runs: list[Run] = []
    threads = [
        threading.Thread(target=lambda k=k: runs.append(execute(Job(script, (str(k),)), sandbox)))
        for k in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [run.failure for run in runs] == [None, None]


def test_folders_without_permissions_are_removed(run: Callable[..., Run]) -> None:
    done = run("import os\nos.makedirs('a/b')\nopen('a/b/c', 'w')\nos.chmod('a/b', 0)\nos.chmod('a', 0)\n")
    assert done.scratch is not None
    assert done.scratch.home.exists()
    done.close()
    assert not done.scratch.home.exists()


def test_a_refusal_names_the_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "train.py"
    script.write_text("import os\n\nos.system('echo x > /tmp/x')\n")
    monkeypatch.chdir(tmp_path)
    with Nursery(1, kind="redirected-bare") as nursery:
        failure = execute(Job(script), nursery).failure
    assert failure is not None
    assert failure.startswith("line 3: SandboxRefusal: os.system('echo x > /tmp/x') could write outside")
    assert "no user namespaces" in failure


@pytest.mark.parametrize("kind", KINDS[:2])
def test_an_end_from_outside_leaves_nothing(tmp_path: Path, kind: str) -> None:
    mark = f"601.{os.getpid()}"
    (tmp_path / "train.py").write_text(
        f"import subprocess, torch\nopen('begun', 'w')\nprocess = subprocess.Popen(['sleep', '{mark}'])\n"
        "process.wait()\nloss.backward()\nopt.step()\n"
        "import torch\nm = torch.nn.Linear(1, 1)\nopt = torch.optim.SGD(m.parameters(), lr=1)\n"
        "for x in torch.utils.data.DataLoader([1.0]):\n    loss = m(x).sum()\n    loss.backward()\n    opt.step()\n"
    )
    scratch = tmp_path / "tmp"
    scratch.mkdir()
    environment = {**os.environ, "TMPDIR": str(scratch), "ACCELIFY_VERIFY_SANDBOX": kind}
    process = subprocess.Popen(
        [sys.executable, "-m", "accelify", "verify", "train.py"], cwd=tmp_path, env=environment,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    deadline = time.monotonic() + 120
    while not _running(mark) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.1)
    assert process.poll() is None
    process.terminate()
    process.wait(60)
    deadline = time.monotonic() + 10
    while (_running(mark) or left(scratch)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not _running(mark)
    assert left(scratch) == []
    assert str(scratch) not in Path("/proc/self/mountinfo").read_text()


def left(folder: Path) -> list[str]:
    # A cache that torch makes when it is imported, also without verify.
    return [name for name in os.listdir(folder) if not name.startswith("torchinductor_")]


@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("unshare") is None, reason="needs root to become another user"
)
def test_the_same_holds_for_a_user_without_rights() -> None:
    """The tests above once more as `nobody`; what of this interpreter root alone can read is opened up for it."""
    if os.environ.get("ACCELIFY_TEST_AS_NOBODY"):
        pytest.skip("this is that run")
    interpreter = Path(sys.base_prefix)
    hidden = next(
        (path for path in reversed(interpreter.parents) if path.stat().st_mode & 0o005 != 0o005), None
    )
    # Not in pytest's own folder, which other sessions close to all users but their own.
    with tempfile.TemporaryDirectory(prefix="accelify-nobody-") as folder:
        lines = ["set -e"]
        if hidden is not None:
            held = Path(folder) / "interpreter"
            held.mkdir()
            lines += [f"mount --bind {interpreter} {held}", f"mount -t tmpfs -o mode=755 tmpfs {hidden}",
                      f"mkdir -p {interpreter}", f"mount --bind {held} {interpreter}"]  # fmt: skip
        home = Path(folder) / "home"
        home.mkdir()
        shutil.chown(home, "nobody")
        Path(folder).chmod(0o755)
        words = f"-m pytest -q -x -p no:cacheprovider --basetemp={home}/t {__file__}"
        command = f"cd {ROOT} && exec {sys.executable} {words}"
        lines.append(f"exec su nobody -s /bin/sh -c {command!r}")
        environment = {**os.environ, "ACCELIFY_TEST_AS_NOBODY": "1", "HOME": str(home)}
        done = subprocess.run(
            ["unshare", "-m", "sh", "-c", "\n".join(lines)], env=environment, capture_output=True, text=True,
            timeout=580,
        )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
    assert " passed" in done.stdout
