"""A launch that a signal ends while it waits for another machine."""

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
