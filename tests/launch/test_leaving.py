"""A launch that a signal ends while it waits for another machine, or for its processes."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_who_waits_for_another_machine_ends(sent: signal.Signals, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("from accelify.runtime import Accelerator\nAccelerator()\n")
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    words = f"--num_machines 2 --num_processes 2 --cpu --main_process_ip 127.0.0.1 --main_process_port {port}"
    command = [sys.executable, "-m", "accelify", "launch", *words.split(), "--machine_rank", "0", str(script)]
    launcher = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    try:
        assert launcher.stderr is not None
        assert "meets the others" in launcher.stderr.readline()
        # It is looking for them by then; sooner or later, it ends in either case.
        time.sleep(3)
        launcher.send_signal(sent)
        assert launcher.wait(60) == 128 + sent
    finally:
        launcher.kill()


def test_who_waits_for_its_processes_says_so_and_ends_them_when_asked_again(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    # One write a line: print() writes a line and its end apart where Python is unbuffered.
    script.write_text(
        "import os, signal, time\nfrom accelify.runtime import Accelerator\nAccelerator(cpu=True)\n"
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\nos.write(1, b'ready\\n')\ntime.sleep(600)\n"
    )
    command = [sys.executable, "-m", "accelify", "launch", "--cpu", "-n", "2", str(script)]
    launcher = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path
    )
    try:
        assert launcher.stdout is not None
        assert launcher.stderr is not None
        assert [launcher.stdout.readline() for _ in range(2)] == ["ready\n"] * 2
        launcher.send_signal(signal.SIGINT)
        waits = "up to 120 s to save and end (--preemption_grace); Ctrl-C once more ends them at once"
        assert any(waits in line for line in iter(launcher.stderr.readline, ""))
        launcher.send_signal(signal.SIGINT)
        assert launcher.wait(100) == 128 + signal.SIGINT
    finally:
        launcher.kill()
