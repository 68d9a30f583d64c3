"""Rank and world of a script that `srun` starts in several tasks, with no launcher between.

torchrun, the deepspeed launcher and accelify's set RANK and WORLD_SIZE; Slurm has other names. These are also set in
places where nothing distributed was meant: in an interactive allocation, whose shell is one task, and in a batch
script. So they count only where srun started this very process as one of several tasks.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping, MutableMapping
from datetime import timedelta
from typing import Any


def store_of_this_attempt() -> dict[str, Any]:
    """Arguments of `init_process_group` for a job that an elastic launcher started again; nothing for a first start.

    Where the launcher lets the processes use its store, the addresses of those that have gone are still there
    (torch 2.13 keeps one store for all attempts of `torchrun --standalone --max-restarts`), and the new ones would wait
    for them in vain. So every further attempt writes under a different prefix.
    """
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    if attempt == "0" or os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return {}
    from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]

    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    store = TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), ranks, False)
    return {"store": PrefixStore(f"accelify/attempt_{attempt}", store), "rank": rank, "world_size": ranks}


def store_of_this_machine(timeout: timedelta | None = None) -> dict[str, Any]:
    """Arguments of `init_process_group` for processes that meet at 127.0.0.1; nothing for others.

    torch's store listens on all interfaces and asks nobody for a password; here only this machine can reach it.

    Args:
        timeout: how long the processes wait for each other; default: torch's.
    """
    names = ("RANK", "WORLD_SIZE", "MASTER_PORT")
    elsewhere = (
        os.environ.get("MASTER_ADDR") != "127.0.0.1"
        or os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    )
    if elsewhere or not all(os.environ.get(name, "").isdigit() for name in names):
        return {}
    from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]

    rank, ranks, port = (int(os.environ[name]) for name in names)
    options: dict[str, Any] = {} if timeout is None else {"timeout": timeout}
    if rank == 0:
        try:
            listener = socket.create_server(("127.0.0.1", port), backlog=min(ranks, socket.SOMAXCONN))
        except OSError:
            return {}  # a store of the script's: torch shares it
        options["master_listen_fd"] = listener.detach()
    store = TCPStore("127.0.0.1", port, ranks, rank == 0, **options)
    # As torch prefixes it.
    return {"store": PrefixStore("default_pg", store), "rank": rank, "world_size": ranks}


def find_rank(environment: MutableMapping[str, str] | None = None) -> bool:
    """Set RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT from Slurm's variables.

    What is set already stays. Nothing happens where RANK or WORLD_SIZE is set, or where srun did not start this process
    as one of several tasks.

    Args:
        environment: default `os.environ`.

    Returns:
        Whether it was srun that says what rank this is.

    Raises:
        ValueError: Slurm's variables do not fit together.
    """
    environment = os.environ if environment is None else environment
    if "RANK" in environment or "WORLD_SIZE" in environment or not _started_by_srun(environment):
        return False
    world, rank = int(environment["SLURM_STEP_NUM_TASKS"]), int(environment["SLURM_PROCID"])
    if not 0 <= rank < world:
        raise ValueError(f"SLURM_PROCID is {rank}, and there are only {world} tasks (SLURM_STEP_NUM_TASKS)")
    found = {
        "RANK": str(rank),
        "WORLD_SIZE": str(world),
        "LOCAL_RANK": environment.get("SLURM_LOCALID", "0"),
        "MASTER_ADDR": _first_machine(environment),
        # Different jobs on the same machines hardly meet; the tasks of one job agree.
        "MASTER_PORT": str(20000 + int(environment.get("SLURM_JOB_ID", "0")) % 20000),
    }
    local = _tasks_here(environment)
    if local is not None:
        found["LOCAL_WORLD_SIZE"] = str(local)
    for name, value in found.items():
        environment.setdefault(name, value)
    return True


def _started_by_srun(environment: Mapping[str, str]) -> bool:
    # A batch script is a separate step (number -5), and so can be the shell of salloc (-6). SLURM_NTASKS speaks of
    # the allocation in both; SLURM_STEP_NUM_TASKS only of a step.
    tasks, step = environment.get("SLURM_STEP_NUM_TASKS", ""), environment.get("SLURM_STEP_ID", "")
    return (
        tasks.isdecimal()
        and int(tasks) > 1
        and step.isdecimal()
        and int(step) < 0xFFFFFF00
        and environment.get("SLURM_PROCID", "").isdecimal()
    )


def _first_machine(environment: Mapping[str, str]) -> str:
    names = environment.get("SLURM_STEP_NODELIST") or environment.get("SLURM_JOB_NODELIST") or ""
    if names:
        return first_of(names)
    if address := environment.get("SLURM_LAUNCH_NODE_IPADDR"):
        return address
    return "127.0.0.1"


def first_of(names: str) -> str:
    """The first machine of Slurm's short form of a list, such as gpu[03-05,7],login1."""
    head = names
    while match := re.match(r"([^,\[]*)\[([^\]]*)\](.*)", head):
        first = re.split(r"[,-]", match[2], maxsplit=1)[0]
        head = f"{match[1]}{first}{match[3]}"
    return head.split(",", 1)[0]


def _tasks_here(environment: Mapping[str, str]) -> int | None:
    """Tasks on this machine: its entry of 2(x3),1."""
    counts: list[int] = []
    for count, times in re.findall(r"(\d+)(?:\(x(\d+)\))?", environment.get("SLURM_STEP_TASKS_PER_NODE", "")):
        counts += [int(count)] * int(times or 1)
    here = environment.get("SLURM_NODEID", "0")
    return counts[int(here)] if here.isdecimal() and int(here) < len(counts) else None
