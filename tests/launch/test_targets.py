"""What is handed to `accelify launch` and cannot work, or not as meant, is told in one sentence."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from accelify.runtime.launch import folder
from accelify.runtime.launch.settings import LaunchError, resolve
from accelify.runtime.launch.target import check_target, works_alone

PLAIN = "import torch\nmodel = torch.nn.Linear(1, 1)\nmodel(torch.ones(1)).sum().backward()\n"
CLEAN = {k: v for k, v in os.environ.items() if not k.startswith(("ACCELIFY_", "ACCELERATE_"))}


def launch(*words: str, cwd: Path, timeout: float = 120) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "accelify", "launch", "--cpu", *words],
        cwd=cwd, env=CLEAN, capture_output=True, text=True, timeout=timeout,
    )  # fmt: skip


@pytest.mark.parametrize("way", ["static", "c10d"])
def test_a_busy_port(tmp_path: Path, way: str) -> None:
    (tmp_path / "train.py").write_text("import accelify")
    with socket.socket() as other:
        other.bind(("", 0))
        other.listen()
        port = str(other.getsockname()[1])
        words = ["--num_machines", "2", "--main_process_ip", "127.0.0.1", "--rdzv_backend", way]
        done = launch("-n", "2", *words, "--main_process_port", port, "train.py", cwd=tmp_path)
    assert done.returncode == 2
    told = done.stderr.strip().splitlines()
    assert told == [
        f"accelify: Port {port} of this machine, where the others look for it, is in use: give another with "
        "--main_process_port, the same on every machine."
    ]


def test_a_port_that_cannot_be() -> None:
    with pytest.raises(LaunchError, match="--main_process_port is 99999; it has to be at most 65535"):
        resolve({"main_process_port": 99999}, devices=0)


@pytest.mark.parametrize("count", ["1", "2"])
def test_a_notebook(tmp_path: Path, count: str) -> None:
    (tmp_path / "train.ipynb").write_text('{"cells": [], "nbformat": 4}')
    done = launch("-n", count, "train.ipynb", cwd=tmp_path)
    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 1
    assert "train.ipynb is a notebook" in done.stderr
    assert "notebook_launcher" in done.stderr


@pytest.mark.distributed
def test_a_script_that_is_not_converted(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PLAIN)
    done = launch("-n", "2", "train.py", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stderr.count("train.py does not use accelify: 2 processes will each do all of its work") == 1
    assert launch("-n", "1", "train.py", cwd=tmp_path).stderr == ""


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--cpu", "--use_fsdp"], "FSDP has nothing to divide: the script runs in one process."),
        ([], "no GPU is visible here: the script runs on the CPU, in one process."),
        (["--cpu"], ""),
        (["-n", "1"], ""),
    ],
)
def test_one_process_that_nobody_asked_for(tmp_path: Path, words: list[str], told: str) -> None:
    (tmp_path / "train.py").write_text("import accelify")
    done = subprocess.run(
        [sys.executable, "-m", "accelify", "launch", *words, "train.py"],
        cwd=tmp_path, env={**CLEAN, "CUDA_VISIBLE_DEVICES": ""}, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr.partition(". ")[0] == (f"accelify: {told}".removesuffix(".") if told else "")


@pytest.mark.parametrize(
    ("files", "alone"),
    [
        ({"train.py": PLAIN}, True),
        ({"train.py": "print(1)"}, False),
        ({"train.py": PLAIN + "from accelify.runtime import Accelerator"}, False),
        ({"train.py": PLAIN + "import torch.distributed as dist"}, False),
        ({"train.py": PLAIN + "import os; rank = os.environ['RANK']"}, False),
        ({"train.py": "import helper", "helper.py": PLAIN}, True),
        (
            {"train.py": PLAIN + "import helper", "helper.py": "from accelify.runtime import Accelerator"},
            False,
        ),
        (
            {
                "train.py": PLAIN + "from lib import loop",
                "lib/__init__.py": "",
                "lib/loop.py": "from . import engine",
                "lib/engine.py": "import accelerate",
            },
            False,
        ),
        ({"train.py": PLAIN + "this is no Python"}, False),
    ],
)
def test_which_scripts_know_of_other_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], alone: bool
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    assert works_alone("train.py", module=False) is alone


def test_folders_of_launchers_that_were_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder.tempfile, "tempdir", str(tmp_path))
    code = (
        f"import os, tempfile; tempfile.tempdir = {str(tmp_path)!r}\n"
        "from accelify.runtime.launch.folder import launch_folder\n"
        "with launch_folder() as place:\n    print(place, flush=True)\n    os.kill(os.getpid(), 9)\n"
    )
    killed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    left = Path(killed.stdout.strip())
    assert left.is_dir()
    with folder.launch_folder() as first:
        assert not left.exists()
        with folder.launch_folder() as second:
            assert first.is_dir()
            assert second.is_dir()
    assert list(tmp_path.iterdir()) == []


def test_a_script_of_a_package_is_started_as_a_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").touch()
    (tmp_path / "package" / "train.py").write_text("from . import other\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(LaunchError, match=r"`-m package\.train`"):
        check_target("package/train.py", module=False)
    check_target("package.train", module=True)
    # What is tried is no must.
    (tmp_path / "package" / "train.py").write_text(
        "try:\n    from . import other\nexcept ImportError:\n    pass\n"
    )
    check_target("package/train.py", module=False)
