"""A queue that announces its time limit: what a script saves then is there."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

CLEAN = {k: v for k, v in os.environ.items() if not k.startswith(("ACCELIFY_", "ACCELERATE_"))}
# Saving takes longer than the 30 s after which torch's own launcher kills.
SLOW = """\
import os, sys, time, torch
from accelify.runtime import Accelerator
accelerator = Accelerator(cpu=True)
if WATCH:
    accelerator.watch_preemption()
model = accelerator.prepare(torch.nn.Linear(2, 1))
class Slow:
    def state_dict(self):
        time.sleep(SECONDS)
        return {}
    def load_state_dict(self, state):
        pass
accelerator.register_for_checkpointing(Slow())
os.write(1, b"ready\\n")
for _ in range(LENGTH):
    time.sleep(0.1)
    if accelerator.check_preemption():
        accelerator.save_state("saved")
        os.write(1, b"saved\\n")
        break
else:
    os.write(1, b"done\\n")
"""


def run(folder: Path, number: int, words: list[str], seconds: float, watch: bool, length: int = 10_000):
    values = {"SECONDS": str(seconds), "WATCH": str(watch), "LENGTH": str(length)}
    text = SLOW
    for name, value in values.items():
        text = text.replace(name, value)
    (folder / "train.py").write_text(text)
    process = subprocess.Popen(
        [sys.executable, "-m", "accelify", "launch", "--cpu", *words, "train.py"],
        cwd=folder, env=CLEAN, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    ranks = 2 if "2" in words else 1
    try:
        for _ in range(ranks):
            assert process.stdout.readline() == "ready\n"
        sent = time.monotonic()
        process.send_signal(number)
        out, errors = process.communicate(timeout=180)
        return process.returncode, out, errors, time.monotonic() - sent
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.mark.distributed
@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGTERM, 128 + signal.SIGTERM), (signal.SIGUSR1, 0)], ids=["TERM", "USR1"]
)
def test_forty_seconds_of_saving_survive(tmp_path: Path, number: int, status: int) -> None:
    code, out, errors, _ = run(tmp_path, number, ["-n", "2", "--preemption_grace", "90"], 40.0, watch=True)
    assert code == status, errors
    assert out.count("saved") == 2
    assert (tmp_path / "saved" / "accelify-checkpoint.json").is_file()


@pytest.mark.distributed
def test_the_grace_ends(tmp_path: Path) -> None:
    code, out, _, seconds = run(
        tmp_path, signal.SIGTERM, ["-n", "2", "--preemption_grace", "3"], 60.0, watch=True
    )
    assert code == 128 + signal.SIGTERM
    assert "saved" not in out
    assert seconds < 45
    assert not (tmp_path / "saved").exists()


@pytest.mark.distributed
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere no process notices it")
def test_a_launcher_that_is_killed_leaves_a_checkpoint_and_no_pages_of_frames(tmp_path: Path) -> None:
    code, out, errors, _ = run(tmp_path, signal.SIGKILL, ["-n", "2"], 0.0, watch=True)
    assert (code, out.count("saved")) == (-signal.SIGKILL, 2)
    assert "frame #" not in errors


@pytest.mark.parametrize("processes", [1, pytest.param(2, marks=pytest.mark.distributed)])
def test_a_warning_reaches_a_script_and_ends_none_that_does_not_watch(tmp_path: Path, processes: int) -> None:
    words = ["-n", str(processes)]
    code, out, errors, _ = run(tmp_path, signal.SIGUSR1, words, 0.0, watch=True)
    assert (code, out.count("saved")) == (0, processes), errors
    code, out, errors, _ = run(tmp_path, signal.SIGUSR1, words, 0.0, watch=False, length=20)
    assert (code, out.count("done")) == (0, processes), errors
