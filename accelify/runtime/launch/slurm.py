"""A batch file for Slurm: one launcher a machine, started by srun."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

from accelify.runtime.launch.fields import BY_NAME, FIELDS, SECTION_FIELDS, Field
from accelify.runtime.launch.settings import DEFAULT, LaunchError, Settings, Value

# What the machines of the job find out there.
_FOUND_OUT = {"num_machines", "machine_rank", "main_process_ip", "main_process_port", "distributed_type"}

# The first host is cut out by bash: with pipefail, "scontrol ... | head -n 1" ends the job with a broken pipe whenever
# head is gone before scontrol has written all its lines.
_BODY = r"""
set -euo pipefail

# The first machine of the job, and a port that two jobs on it hardly share.
hosts=$(scontrol show hostnames "$SLURM_JOB_NODELIST")
main=${{hosts%%$'\n'*}}
port=$((20000 + SLURM_JOB_ID % 20000))

# One launcher a machine; each starts its machine's processes.
srun --nodes={nodes} --ntasks={nodes} --ntasks-per-node=1 --kill-on-bad-exit=1 \
    bash -c 'ACCELIFY_MACHINE_RANK=$SLURM_PROCID exec "$@"' accelify \
    {command} \
    --num_machines {nodes} --main_process_ip "$main" --main_process_port "$port" \
    {target}
"""


def default_name(script: str) -> str:
    """The script's name, as Slurm and files take it."""
    return re.sub(r"[^\w.-]", "_", Path(script).stem) or "train"


def batch_file(
    settings: Settings,
    script: str,
    arguments: list[str],
    *,
    module: bool = False,
    partition: str | None = None,
    time: str | None = None,
    job_name: str | None = None,
    slurm_options: str | None = None,
) -> str:
    """The text of a batch file.

    Args:
        settings: of the job; num_processes and num_machines are the job's, so they have to be set.
        script, arguments, module: as for `command.make_plan`.
        partition, time, job_name: sbatch's options of those names.
        slurm_options: more of them, as on a command line.

    Raises:
        LaunchError: the number of processes is missing, or an option cannot be used.
    """
    if settings.source("num_processes").startswith(DEFAULT) and not settings["cpu"]:
        raise LaunchError(
            "--slurm needs --num_processes, for all machines together: the devices of this machine say nothing about "
            "the job's."
        )
    if time and not re.fullmatch(r"(\d+-)?\d+(:\d+){0,2}", time):
        raise LaunchError(
            f"--time {time}: Slurm knows minutes, hours:minutes:seconds and days-hours:minutes:seconds."
        )
    nodes: int = settings["num_machines"]
    local = settings["num_processes"] // nodes
    name = job_name or default_name(script)
    quoted = shlex.quote(name)
    output = shlex.quote(f"{name}-%j.out")
    options = [f"--job-name={quoted}", f"--nodes={nodes}", "--ntasks-per-node=1", f"--output={output}"]
    if not settings["cpu"] and settings["distributed_type"] != "XLA":
        options.append(f"--gpus-per-node={local}")
    threads = settings["num_cpu_threads_per_process"]
    if settings["cpu"] or threads:
        options.append(f"--cpus-per-task={local * (threads or 1)}")
    options += [f"--partition={partition}"] if partition else []
    options += [f"--time={time}"] if time else []
    more = _words(slurm_options)
    grace = settings.values["preemption_grace"]
    if not grace.source.startswith(DEFAULT) and not any(word.startswith("--signal") for word in more):
        options.append(f"--signal=USR1@{grace.value}")
    options += map(shlex.quote, more)
    command = [sys.executable, "-m", "accelify", "launch", *_flags(settings)]
    body = _BODY.format(
        nodes=nodes,
        command=shlex.join(command),
        target=shlex.join([*(["-m"] if module else []), script, *arguments]),
    )
    return "#!/bin/bash\n" + "".join(f"#SBATCH {option}\n" for option in options) + body


def _words(text: str | None) -> list[str]:
    try:
        words = shlex.split(text or "")
    except ValueError as error:
        raise LaunchError(f"--slurm_options {text}: {error}.") from None
    odd = next((word for word in words if not word.startswith("-")), None)
    if odd is not None:
        raise LaunchError(
            f"--slurm_options {text}: write every option with its value, as in --account=me, not {odd}."
        )
    return words


def _flags(settings: Settings) -> list[str]:
    """What is set, wherever it came from, as flags: the job does not depend on a file or variable of today."""
    given = [(item, settings.values[item.name]) for item in FIELDS if item.name not in _FOUND_OUT]
    for name, section in settings.sections.items():
        keys = {item.file_key: item for item in SECTION_FIELDS if item.section == name}
        # Accumulation is a separate value, which DeepSpeed's section repeats.
        given += [(keys.get(key) or BY_NAME[key], value) for key, value in section.items()]
    words: list[str] = []
    kind = settings.values["distributed_type"]
    if not kind.source.startswith(DEFAULT) and kind.value not in ("NO", None):
        words += ["--distributed_type", kind.value]
    # An empty file keeps that of whoever runs the job out.
    words += ["--config_file", "/dev/null"]
    for item, value in dict(given).items():
        words += _flag(item, value)
    return words


def _flag(item: Field, value: Value) -> list[str]:
    if value.value is None or (value.source.startswith(DEFAULT) and item.name != "num_processes"):
        return []
    if item.kind is bool and item.switch:
        return [f"--{item.name}" if value.value else f"--no_{item.name}"]
    return [f"--{item.name}", str(value.value).lower() if item.kind is bool else str(value.value)]
