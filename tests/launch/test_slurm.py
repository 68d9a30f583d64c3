"""The batch file for Slurm, run by bash with stand-ins for srun and scontrol."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.launch.saying import SAY

LAUNCH = [sys.executable, "-c", "from accelify.cli.main import main; main()", "launch"]
ROOT = str(Path(__file__).parents[2])
# Starts its command once a machine, as srun does with --ntasks-per-node=1, and ends with the highest status.
SRUN = """\
#!/bin/bash
while [[ $1 == --* ]]; do echo "$1" >> "$SEEN"; shift; done
for machine in 0 1; do SLURM_PROCID=$machine SLURM_NODEID=$machine "$@" & started+=($!); done
worst=0
for process in "${started[@]}"; do wait "$process" || worst=$?; done
exit "$worst"
"""
# Writes its lines one after the other: who stops reading after the first ends it with a broken pipe.
SCONTROL = """\
#!/bin/bash
[[ "$1 $2 $3" == "show hostnames localhost,localhost" ]] || exit 9
echo localhost
sleep 0.2
echo localhost
"""
TRAIN = (
    SAY
    + """\
import sys
from accelify.runtime import Accelerator
import torch
accelerator = Accelerator()
total = accelerator.reduce(torch.tensor([accelerator.process_index + 1.0]), reduction="sum")
say("SEEN", accelerator.process_index, os.environ["GROUP_RANK"], float(total), sys.argv[1:])
"""
)


def write_job(folder: Path, *words: str, script: str = TRAIN) -> subprocess.CompletedProcess[str]:
    (folder / "train.py").write_text(script)
    return subprocess.run(
        [*LAUNCH, "--slurm", *words, "train.py", "--name", "two words", "$HOME"],
        cwd=folder, capture_output=True, text=True, env=environment(folder),
    )  # fmt: skip


def environment(folder: Path) -> dict[str, str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("ACCELIFY_", "SLURM_", "MASTER_"))}
    return {**clean, "HF_HOME": str(folder / "nothing"), "PYTHONPATH": ROOT}


def options_of(text: str) -> list[str]:
    return [line.removeprefix("#SBATCH ") for line in text.splitlines() if line.startswith("#SBATCH ")]


@pytest.mark.distributed
def test_the_batch_file_runs_the_job_on_its_machines(tmp_path: Path) -> None:
    done = write_job(tmp_path, "--cpu", "-n", "4", "--nodes", "2")
    assert done.stdout == "train.sbatch is written; start it with: sbatch train.sbatch\n", done.stderr
    tools = tmp_path / "tools"
    tools.mkdir()
    for name, text in (("srun", SRUN), ("scontrol", SCONTROL)):
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    ran = subprocess.run(
        ["bash", "train.sbatch"], cwd=tmp_path, capture_output=True, text=True, timeout=300,
        env={
            **environment(tmp_path), "PATH": f"{tools}:{os.environ['PATH']}", "SEEN": str(tmp_path / "seen"),
            "SLURM_JOB_NODELIST": "localhost,localhost", "SLURM_JOB_ID": str(os.getpid()),
        },
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    lines = sorted(re.findall(r"SEEN .*?\]", ran.stdout))
    words = "['--name', 'two words', '$HOME']"
    assert lines == [f"SEEN {rank} {rank // 2} 10.0 {words}" for rank in range(4)]
    assert (tmp_path / "seen").read_text().split() == [
        "--nodes=2", "--ntasks=2", "--ntasks-per-node=1", "--kill-on-bad-exit=1",
    ]  # fmt: skip


def test_what_is_asked_of_slurm(tmp_path: Path) -> None:
    done = write_job(
        tmp_path, "-n", "8", "--nodes", "2", "--slurm_file", "-", "--partition", "big",
        "--time", "1-12:00:00", "--job_name", "run 1", "--slurm_options", "--account=me --qos=fast",
        "--num_cpu_threads_per_process", "3", "--mixed_precision", "bf16",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert options_of(done.stdout) == [
        "--job-name='run 1'", "--nodes=2", "--ntasks-per-node=1", "--output='run 1-%j.out'", "--gpus-per-node=4",
        "--cpus-per-task=12", "--partition=big", "--time=1-12:00:00", "--account=me", "--qos=fast",
    ]  # fmt: skip
    assert "--mixed_precision bf16" in done.stdout


@pytest.mark.parametrize(
    ("more", "options"), [("", ["--signal=USR1@90"]), ("--signal=USR1@60", ["--signal=USR1@60"])]
)
def test_slurm_warns_so_long_before_the_end(tmp_path: Path, more: str, options: list[str]) -> None:
    words = ["-n", "2", "--cpu", "--slurm_file", "-", "--preemption_grace", "90", f"--slurm_options={more}"]
    done = write_job(tmp_path, *words)
    assert [option for option in options_of(done.stdout) if option.startswith("--signal")] == options
    assert "--preemption_grace 90" in done.stdout


def test_the_text_is_bash(tmp_path: Path) -> None:
    done = write_job(tmp_path, "-n", "8", "--nodes", "2", "--slurm_file", "-", "--job_name", "run 1")
    assert subprocess.run(["bash", "-n"], input=done.stdout, text=True).returncode == 0


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], "--slurm needs --num_processes"),
        (["-n", "2", "--time", "soon"], "--time soon"),
        (["-n", "2", "--slurm_options", "account"], "write every option with its value"),
    ],
)
def test_bad_input_is_one_sentence(tmp_path: Path, words: list[str], expected: str) -> None:
    done = write_job(tmp_path, *words)
    assert done.returncode == 2
    assert expected in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_file_that_is_there_is_kept(tmp_path: Path) -> None:
    (tmp_path / "train.sbatch").write_text("mine")
    done = write_job(tmp_path, "--cpu", "-n", "2")
    assert "is there already" in done.stderr
    assert (tmp_path / "train.sbatch").read_text() == "mine"
    assert write_job(tmp_path, "--cpu", "-n", "2", "--force").returncode == 0
    assert "#SBATCH" in (tmp_path / "train.sbatch").read_text()
