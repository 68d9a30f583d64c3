"""`accelify launch` on real processes: how many, what they see, how they end."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

from accelify.runtime.launch.settings import count_devices
from tests.launch.saying import SAY

LAUNCH = [sys.executable, "-c", "from accelify.cli.main import main; main()", "launch"]
CLEAN = {k: v for k, v in os.environ.items() if not k.startswith(("ACCELIFY_", "OMP_"))}
SEE = (
    SAY
    + """\
import sys
say("SEEN", os.environ.get("RANK"), os.environ.get("WORLD_SIZE"), os.environ.get("ACCELIFY_USE_CPU"),
    os.environ.get("ACCELIFY_MIXED_PRECISION"), __name__, sys.argv[1:])
"""
)
FAIL = """\
import os, sys, time
if os.environ["RANK"] == "1":
    raise ValueError("on purpose")
time.sleep(60)
"""
SLEEP = (
    SAY
    + """\
import time
say("PID", os.getpid())
time.sleep(120)
"""
)


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
    assert sorted(re.findall(r"SEEN .*?\]", done.stdout)) == [
        "SEEN 0 2 true bf16 __main__ ['a']",
        "SEEN 1 2 true bf16 __main__ ['a']",
    ]
    assert done.returncode == 0


@pytest.mark.distributed
def test_what_is_gathered_warns_of_nothing(tmp_path: Path) -> None:
    """As much as no message between the ranks takes beside it."""
    script = (
        "import torch\nfrom accelify.runtime import Accelerator\naccelerator = Accelerator()\n"
        "print(accelerator.gather(torch.full((200_000,), 1.0 + accelerator.process_index)).sum().item())\n"
    )
    done = launch("--num_processes", "2", "--cpu", write(tmp_path, script), cwd=tmp_path)
    assert done.stdout == "600000.0\n" * 2
    assert "Warning" not in done.stderr


@pytest.mark.distributed
def test_a_module_is_found_from_the_working_directory(tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("")
    (tmp_path / "package" / "train.py").write_text(SEE)
    done = launch("--num_processes", "2", "--cpu", "-m", "package.train", "x", cwd=tmp_path)
    assert done.stdout.count("__main__ ['x']") == 2


@pytest.mark.parametrize("number", [1, pytest.param(2, marks=pytest.mark.distributed)])
def test_a_script_that_is_no_python_is_named_by_its_own_line(tmp_path: Path, number: int) -> None:
    done = launch("--cpu", "--num_processes", f"{number}", write(tmp_path, "x = 1\ny = (2\n"), cwd=tmp_path)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert done.stderr.count("SyntaxError: '(' was never closed") == 1
    assert "worker.py" not in done.stderr


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
@pytest.mark.parametrize("whole", ["", "1"])
def test_an_error_that_the_script_causes_comes_without_the_inside_of_the_runtime(
    tmp_path: Path, whole: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(CLEAN, "ACCELIFY_TRACEBACK", whole)
    script = write(
        tmp_path, "from accelify.runtime import Accelerator\nAccelerator(cpu=True, mixed_precision='x')\n"
    )
    done = launch("--cpu", "-n", "2", script, cwd=tmp_path)
    assert done.returncode == 1
    assert (
        done.stderr.splitlines()[-1] == "ValueError: mixed_precision must be one of no, bf16, fp16, not 'x'"
    )
    assert done.stderr.count("  File ") == (3 if whole else 1)


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


@pytest.mark.distributed
def test_ctrl_c_gets_one_line(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [*LAUNCH, "--cpu", "-n", "2", write(tmp_path, SLEEP)],
        cwd=tmp_path, env=CLEAN, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None
    started = 0
    while started < 2:
        line = process.stdout.readline()
        assert line, "the launcher ended before its processes started"
        started += line.startswith("PID")
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    _, complaints = process.communicate(timeout=60)
    assert process.returncode == 130
    assert re.fullmatch(r"accelify launch: interrupted(; rank 0 was at \S+:\d+)?\.\n", complaints)


BAR = """\
import sys, time
from accelify.runtime import Accelerator
accelerator = Accelerator()
print("loss=1.3", end="", file=sys.stderr, flush=True)
time.sleep(SECONDS)
raise ValueError("on purpose")
"""


@pytest.mark.distributed
@pytest.mark.parametrize(
    ("after", "sent", "said"),
    [
        (b"starting 2", signal.SIGINT, b"accelify: interrupted."),
        (b"starting 2", signal.SIGTERM, b"accelify launch: ended by SIGTERM"),
        (b"loss=", signal.SIGINT, b"accelify launch: interrupted; rank 0"),
        (b"loss=", None, b"accelify launch: rank"),
    ],
)
def test_on_a_terminal_each_message_has_a_line_of_its_own(
    tmp_path: Path, after: bytes, sent: signal.Signals | None, said: bytes
) -> None:
    script = write(tmp_path, BAR.replace("SECONDS", "60" if sent else "0"))
    screen, end = os.openpty()
    environment = {**CLEAN, "TERM": "xterm", "HF_HOME": str(tmp_path / "no-configuration")}
    process = subprocess.Popen(
        [*LAUNCH, "--cpu", "-n", "2", script],
        cwd=tmp_path, env=environment, stdout=end, stderr=end, start_new_session=True,
    )  # fmt: skip
    termios.tcsetwinsize(end, (24, 80))
    os.close(end)
    seen = b""
    with contextlib.suppress(OSError):  # nobody writes to it any more
        while more := os.read(screen, 4096):
            seen += more
            if sent and after in seen:
                os.killpg(process.pid, sent)
                sent = None
    os.close(screen)
    process.wait(60)
    assert said in seen
    assert not re.search(rb"[^\n\rK]accelify( launch)?: ", seen)


def test_a_long_message_is_broken_between_words(tmp_path: Path) -> None:
    script = write(tmp_path, "import torch\ntorch.ones(1, requires_grad=True).sum().backward()\n")
    screen, end = os.openpty()
    termios.tcsetwinsize(end, (24, 60))
    with subprocess.Popen(
        [*LAUNCH, "--cpu", "-n", "2", script],
        cwd=tmp_path,
        stdout=end,
        stderr=end,
        env={**CLEAN, "TERM": "xterm"},
    ):
        os.close(end)
        seen = b""
        with contextlib.suppress(OSError):  # nobody writes to it any more
            while more := os.read(screen, 4096):
                seen += more
    os.close(screen)
    message, _, _ = seen.decode().partition("changes that.")
    lines = message[message.rindex("accelify launch: ") :].splitlines()
    assert "does not use accelify" in " ".join(map(str.strip, lines))
    assert all(line.startswith("    ") for line in lines[1:])
    assert any("`accelify convert`" in line for line in lines)
    assert all(len(line) <= 60 for line in lines if "/" not in line)


def test_a_gpu_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    if count_devices():
        pytest.skip("there is a CUDA device here")
    done = launch("--gpu_ids", "0", write(tmp_path, SEE), cwd=tmp_path)
    assert done.returncode == 2
    assert "there are none here" in done.stderr


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
        (["absent.py"], "absent.py does not exist: check the path."),
        (["-m", "absent_module"], "No module named 'absent_module'"),
        (["-n", "0", "absent.py"], "--num_processes (-n) is 0; it has to be at least 1"),
        (["--config_file", "absent.yaml", "absent.py"], "no configuration file"),
    ],
)
def test_bad_input_is_one_sentence(tmp_path: Path, words: list[str], expected: str) -> None:
    done = launch(*words, cwd=tmp_path)
    assert done.returncode == 2
    assert expected in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert "Traceback" not in done.stderr


AGAIN = (
    SAY
    + """\
import torch
from accelify.runtime import Accelerator
accelerator = Accelerator()
attempt = os.environ["TORCHELASTIC_RESTART_COUNT"]
total = accelerator.reduce(torch.tensor([1.0]), reduction="sum")
say("TRIED", attempt, float(total))
if attempt == "0" and accelerator.process_index == 1:
    raise ValueError("the first time")
accelerator.wait_for_everyone()
"""
)


@pytest.mark.distributed
def test_a_failed_job_starts_again(tmp_path: Path) -> None:
    done = launch("--cpu", "-n", "2", "--max_restarts", "1", write(tmp_path, AGAIN), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    tried = sorted(re.findall(r"TRIED \d \d\.\d", done.stdout))
    assert tried == ["TRIED 0 2.0", "TRIED 0 2.0", "TRIED 1 2.0", "TRIED 1 2.0"]
    assert done.stderr.count("ValueError: the first time") == 1
    assert "rank 1 failed first: starting again (1 of 1)." in done.stderr


JOINS = """\
import torch.distributed as dist
dist.init_process_group("gloo")
print("JOINED", dist.get_rank(), dist.get_world_size())
"""


@pytest.mark.distributed
def test_one_process_of_a_script_that_joins_its_group_has_a_rank(tmp_path: Path) -> None:
    done = launch("--cpu", write(tmp_path, JOINS), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "JOINED 0 1" in done.stdout


LEAVE = (
    SAY
    + """\
import atexit
import torch.distributed as dist
atexit.register(lambda: say("LEFT", not dist.is_initialized()))
from accelify.runtime import Accelerator
accelerator = Accelerator()
say("THERE", dist.is_initialized())
"""
)


@pytest.mark.distributed
def test_the_process_group_is_left_at_the_end(tmp_path: Path) -> None:
    done = launch("--cpu", "-n", "2", write(tmp_path, LEAVE), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (done.stdout.count("THERE True\n"), done.stdout.count("LEFT True\n")) == (2, 2), done.stdout


TYPE = (
    SAY
    + """\
from accelify.runtime import Accelerator
say("TYPE", Accelerator().distributed_type, os.environ.get("ACCELIFY_ENGINE"))
"""
)


@pytest.mark.distributed
@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ["--use_fsdp", "--fsdp_reshard_after_forward", "false"],
            'FSDP {"fsdp": {"fsdp_reshard_after_forward": false}}',
        ),
        (["--tp_size", "2"], 'TP {"parallelism": {"parallelism_config_tp_size": 2}}'),
        (["--dynamo_backend", "eager"], 'MULTI_CPU {"dynamo": {"dynamo_backend": "eager"}}'),
    ],
)
def test_the_engine_that_is_asked_for_runs(tmp_path: Path, words: list[str], told: str) -> None:
    done = launch("--cpu", "-n", "2", *words, write(tmp_path, TYPE), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(f"TYPE {told}\n") == 2, done.stdout


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--fsdp_state_dict_type", "FULL"], "--fsdp_state_dict_type cannot be 'FULL': known are"),
        (["--zero_stage", "4"], "--zero_stage must be 0, 1, 2 or 3"),
        (
            ["--use_deepspeed", "--deepspeed_config_file", "absent.json"],
            "--deepspeed_config_file names absent.json",
        ),
        (["--use_fsdp", "--use_deepspeed"], "--use_fsdp and --use_deepspeed ask for different things"),
        (["--dynamo_mode", "default"], "--dynamo_mode is for torch.compile, which is not asked for"),
    ],
)
def test_what_an_engine_refuses_is_one_sentence(tmp_path: Path, words: list[str], expected: str) -> None:
    done = launch("--cpu", "-n", "2", *words, write(tmp_path, ""), cwd=tmp_path)
    assert done.returncode == 2
    assert expected in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr


def test_xla_devices_of_the_cpu_are_made_for_one_process(tmp_path: Path) -> None:
    script = write(tmp_path, "")
    done = launch("--dry-run", "--tpu", "--cpu", "--num_devices", "4", script, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "PJRT_DEVICE=CPU" in done.stdout
    assert "CPU_NUM_DEVICES=4" in done.stdout
    assert done.stdout.rstrip().endswith(f"{sys.executable} {script}")
    done = launch("--dry-run", "--tpu", "--cpu", "--spmd", "false", "-n", "2", script, cwd=tmp_path)
    assert "replicas.py" in done.stdout


def test_the_deepspeed_launcher_where_it_is_asked_for(tmp_path: Path) -> None:
    words = ["--cpu", "-n", "2", "--zero_stage", "2", "--deepspeed_launcher", "--dry-run"]
    done = launch(*words, write(tmp_path, ""), "--rate", "1", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    tail = "-m deepspeed.launcher.runner --no_local_rank --num_gpus 2 script.py --rate 1"
    assert done.stdout.rstrip().endswith(tail)
    assert "ACCELIFY_ENGINE" in done.stdout


DRAWN = (
    SAY
    + """\
import random
import numpy
import torch
import accelify
say("DRAWN", random.random(), numpy.random.rand(), torch.rand(()).item(), *{"a", "b", "c", "d"})
"""
)


def test_processes_draw_alike_before_there_is_an_accelerator(tmp_path: Path) -> None:
    script = write(tmp_path, DRAWN)
    first, second = (
        sorted(line for line in launch("-n", "2", "--cpu", script, cwd=tmp_path).stdout.splitlines() if line)
        for _ in range(2)
    )
    assert len(first) == 2
    assert first[0] == first[1]
    assert second[0] == second[1] != first[0]
    plain = write(tmp_path, DRAWN.replace("import accelify\n", ""))
    one, other = launch("-n", "2", "--cpu", plain, cwd=tmp_path).stdout.splitlines()
    assert one != other


def test_an_exception_has_the_status_of_one_however_long_its_rank_takes_to_end(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import atexit, os, time\n"
        "if os.environ['RANK'] == '0':\n"
        "    atexit.register(time.sleep, 20)\n"
        "    raise ValueError('rank 0 raises')\n"
        "time.sleep(2)\n"
        "raise ValueError('rank 1 raises')\n"
    )
    done = launch("--cpu", "-n", "2", str(script), cwd=tmp_path)
    assert done.returncode == 1
    assert "rank 0 failed first (exit status 1)" in done.stderr
    assert "SIGTERM" not in done.stderr


def test_a_wrong_command_line_of_the_script_is_said_once(tmp_path: Path) -> None:
    text = "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--lr')\nparser.parse_args()\n"
    done = launch("--cpu", "-n", "2", write(tmp_path, text), "--rate", "1", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.count("unrecognized arguments: --rate 1") == 1
    assert done.stderr.count("usage: ") == 1
