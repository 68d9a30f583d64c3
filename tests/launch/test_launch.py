"""`accelify launch` on real processes: how many, what they see, how they end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

LAUNCH = [sys.executable, "-c", "from accelify.cli.main import main; main()", "launch"]
CLEAN = {k: v for k, v in os.environ.items() if not k.startswith(("ACCELIFY_", "OMP_"))}
SEE = """\
import os, sys
print("SEEN", os.environ.get("RANK"), os.environ.get("WORLD_SIZE"), os.environ.get("ACCELIFY_USE_CPU"),
      os.environ.get("ACCELIFY_MIXED_PRECISION"), __name__, sys.argv[1:], flush=True)
"""
FAIL = """\
import os, sys, time
if os.environ["RANK"] == "1":
    raise ValueError("on purpose")
time.sleep(60)
"""
SLEEP = """\
import os, time
print("PID", os.getpid(), flush=True)
time.sleep(120)
"""


def launch(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {**CLEAN, "HF_HOME": str(cwd / "no-configuration")}
    return subprocess.run(
        [*LAUNCH, *words], cwd=cwd, env=environment, capture_output=True, text=True, timeout=200
    )


def write(folder: Path, text: str) -> str:
    (folder / "script.py").write_text(text)
    return "script.py"


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{pid}/stat")
    return not (status.exists() and status.read_text().rsplit(")", 1)[1].split()[0] == "Z")


def test_one_process_gets_its_arguments_and_no_rendezvous(tmp_path: Path) -> None:
    done = launch("--cpu", write(tmp_path, SEE), "--num_processes", "7", cwd=tmp_path)
    assert done.stdout == "SEEN None None true None __main__ ['--num_processes', '7']\n"
    assert done.returncode == 0


@pytest.mark.distributed
def test_cpu_with_two_processes_starts_two(tmp_path: Path) -> None:
    words = ["--cpu", "--num_processes", "2", "--mixed_precision", "bf16", write(tmp_path, SEE), "a"]
    done = launch(*words, cwd=tmp_path)
    assert sorted(line for line in done.stdout.splitlines() if line.startswith("SEEN")) == [
        "SEEN 0 2 true bf16 __main__ ['a']",
        "SEEN 1 2 true bf16 __main__ ['a']",
    ]
    assert done.returncode == 0


@pytest.mark.distributed
def test_a_module_is_found_from_the_working_directory(tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("")
    (tmp_path / "package" / "train.py").write_text(SEE)
    done = launch("--num_processes", "2", "--cpu", "-m", "package.train", "x", cwd=tmp_path)
    assert done.stdout.count("__main__ ['x']") == 2


@pytest.mark.distributed
def test_the_first_failure_comes_through_once(tmp_path: Path) -> None:
    started = time.monotonic()
    done = launch("--cpu", "--num_processes", "2", write(tmp_path, FAIL), cwd=tmp_path)
    assert done.returncode == 1
    assert "rank 1 failed first (exit status 1)." in done.stderr
    assert done.stderr.count("ValueError: on purpose") == 1
    assert "worker.py" not in done.stderr
    assert time.monotonic() - started < 50, "the sleeping rank was not ended"


@pytest.mark.distributed
@pytest.mark.parametrize("processes", ["1", "2"])
def test_the_exit_status_comes_through(tmp_path: Path, processes: str) -> None:
    done = launch("--cpu", "-n", processes, write(tmp_path, "import sys; sys.exit(7)"), cwd=tmp_path)
    assert done.returncode == 7


@pytest.mark.distributed
@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_signal_leaves_no_process_behind(tmp_path: Path, processes: int, number: signal.Signals) -> None:
    if number == signal.SIGKILL and (processes == 1 or not sys.platform.startswith("linux")):
        pytest.skip("a launcher killed outright can only be noticed by the workers, and on Linux")
    script = write(tmp_path, SLEEP)
    process = subprocess.Popen(
        [*LAUNCH, "--cpu", "-n", str(processes), script],
        cwd=tmp_path, env=CLEAN, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None
    pids = []
    while len(pids) < processes:
        line = process.stdout.readline()
        assert line, "the launcher ended before its processes started"
        pids += [int(line.split()[1])] if line.startswith("PID") else []
    process.send_signal(number)
    code = process.wait(timeout=60)
    deadline = time.monotonic() + 20
    while any(map(alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.05)
    left = [pid for pid in pids if alive(pid)]
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert not left
    assert code == (128 + number if number != signal.SIGKILL else -number)


def test_dry_run_and_explain_start_nothing(tmp_path: Path) -> None:
    script = write(tmp_path, "raise SystemExit(9)")
    done = launch("--dry-run", "--explain", "-n", "2", "--cpu", script, cwd=tmp_path)
    assert done.returncode == 0
    assert "torch.distributed.run --nproc-per-node 2" in done.stdout
    assert "num_processes" in done.stdout
    assert "flag" in done.stdout


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["absent.py"], "There is no file absent.py."),
        (["-m", "absent_module"], "No module named 'absent_module'"),
        (["-n", "0", "absent.py"], "at least 1"),
        (["--config_file", "absent.yaml", "absent.py"], "no configuration file"),
    ],
)
def test_bad_input_is_one_sentence(tmp_path: Path, words: list[str], expected: str) -> None:
    done = launch(*words, cwd=tmp_path)
    assert done.returncode == 2
    assert expected in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert "Traceback" not in done.stderr
