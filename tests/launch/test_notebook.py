"""Launching a function from inside Python."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from accelify.runtime.launch.notebook import notebook_launcher

pytestmark = pytest.mark.distributed

SEE = """
import os, sys, json, pathlib
from accelify.runtime.launch.notebook import debug_launcher, notebook_launcher

def train(folder, word):
    from accelify.runtime import Accelerator
    import torch
    accelerator = Accelerator()
    total = accelerator.reduce(torch.tensor([1.0 + accelerator.process_index]), reduction="sum")
    path = pathlib.Path(folder) / f"{accelerator.process_index}.json"
    path.write_text(json.dumps([accelerator.num_processes, float(total), word]))

def fail(folder, word):
    if os.environ["RANK"] == "1":
        raise ValueError("on purpose")
    import time; time.sleep(60)

folder = sys.argv[1]
"""


def python(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("ACCELIFY_", "ACCELERATE_"))}
    return subprocess.run(
        [sys.executable, "-c", SEE + code, str(folder)],
        capture_output=True, text=True, timeout=200, env=environment,
    )  # fmt: skip


@pytest.mark.parametrize(
    "call", ["debug_launcher(train, (folder, 'w'))", "notebook_launcher(train, (folder, 'w'), 2)"]
)
def test_two_processes_find_each_other(tmp_path: Path, call: str) -> None:
    done = python(call, tmp_path)
    assert done.returncode == 0, done.stderr
    seen = [json.loads(path.read_text()) for path in sorted(tmp_path.iterdir())]
    assert seen == [[2, 3.0, "w"], [2, 3.0, "w"]]


def test_a_failing_rank_ends_all_and_is_told(tmp_path: Path) -> None:
    done = python("debug_launcher(fail, (folder, 'w'))", tmp_path)
    assert done.returncode == 1
    assert "RuntimeError: the function failed on rank 1" in done.stderr
    assert "ValueError: on purpose" in done.stderr


def test_one_process_runs_here_and_leaves_no_trace(tmp_path: Path) -> None:
    done = python(
        "notebook_launcher(lambda: print(os.getpid(), os.environ['ACCELIFY_MIXED_PRECISION']), (), 1, 'bf16')\n"
        "print(os.getpid(), 'ACCELIFY_MIXED_PRECISION' in os.environ)",
        tmp_path,
    )
    first, second = (line.split() for line in done.stdout.splitlines())
    assert first[0] == second[0]
    assert (first[1], second[1]) == ("bf16", "False")


def test_an_accelerator_outside_of_the_function_is_refused(tmp_path: Path) -> None:
    code = (
        "from accelify.runtime import Accelerator; Accelerator(); notebook_launcher(train, (folder, 'w'), 2)"
    )
    done = python(code, tmp_path)
    assert "make it inside the function only" in done.stderr.splitlines()[-1]


def test_numbers_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    done = python("notebook_launcher(train, (), 2, num_nodes=2, node_rank=2)", tmp_path)
    assert "do not fit together" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize("options", [{}, {"monitor_interval": 0.1}])
def test_ports_that_cannot_be(options: dict[str, float]) -> None:
    with socket.socket() as other:
        other.bind(("", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(ValueError, match=f"port {port} of this machine is in use: give another"):
            notebook_launcher(print, num_processes=2, use_port=port, **options)
    for wrong in (99999, "0", "http"):
        with pytest.raises(ValueError, match=f"use_port must be a number from 1 to 65535, not {wrong!r}"):
            notebook_launcher(print, num_processes=2, use_port=wrong, **options)


AGENT = """\
import os, sys
from accelify.runtime import notebook_launcher

def train():
    from accelify.runtime import PartialState
    state = PartialState(cpu=True)
    attempt = os.environ["TORCHELASTIC_RESTART_COUNT"]
    os.write(1, f"rank {state.process_index} of {state.num_processes}, attempt {attempt}\\n".encode())
    state.wait_for_everyone()
    if attempt == "0" and FAILS:
        raise RuntimeError("the first time")

notebook_launcher(train, (), num_processes=2, OPTIONS)
print("over")
"""


@pytest.mark.distributed
@pytest.mark.parametrize(
    ("options", "fails"),
    [("rdzv_backend='c10d'", False), ("monitor_interval=0.05", False), ("max_restarts=1", True)],
)
def test_torchs_agent_starts_the_processes(tmp_path: Path, options: str, fails: bool) -> None:
    script = tmp_path / "cell.py"
    script.write_text(AGENT.replace("OPTIONS", options).replace("FAILS", str(fails)))
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    last = 1 if fails else 0
    assert "over" in done.stdout
    for rank in (0, 1):
        assert f"rank {rank} of 2, attempt {last}" in done.stdout


ALONE = """\
import subprocess
from accelify.runtime import debug_launcher

def train():
    import os
    from accelify.runtime import PartialState
    state = PartialState(cpu=True)
    if state.is_main_process:
        files = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]
        inodes = {os.readlink(file) for file in files if os.path.islink(file)}
        for name in ("tcp", "tcp6"):
            for line in open(f"/proc/net/{name}").read().splitlines()[1:]:
                words = line.split()
                # The state 0A is that of a socket that listens.
                if words[3] == "0A" and f"socket:[{words[9]}]" in inodes:
                    print("listens at", words[1].partition(":")[0], flush=True)
    state.wait_for_everyone()

debug_launcher(train, (), num_processes=2)
"""


@pytest.mark.distributed
@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux which sockets listen")
def test_nothing_listens_to_other_machines(tmp_path: Path) -> None:
    script = tmp_path / "cell.py"
    script.write_text(ALONE)
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    # 127.0.0.1 as Linux writes it.
    assert set(done.stdout.splitlines()) == {"listens at 0100007F"}
