"""Rank and world from Slurm's variables, and where they must not be taken."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from accelify.runtime.rank_environment import find_rank, first_of

STEP = {
    "SLURM_JOB_ID": "25001",
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_STEP_NODELIST": "gpu[07-08]",
    "SLURM_STEP_TASKS_PER_NODE": "2(x2)",
    "SLURM_NTASKS": "4",
    "SLURM_PROCID": "3",
    "SLURM_LOCALID": "1",
    "SLURM_NODEID": "1",
}


def test_a_task_of_srun_knows_its_place() -> None:
    environment = dict(STEP)
    assert find_rank(environment)
    found = {name: value for name, value in environment.items() if name not in STEP}
    assert found == {
        "RANK": "3",
        "WORLD_SIZE": "4",
        "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "2",
        "MASTER_ADDR": "gpu07",
        "MASTER_PORT": "25001",
    }


@pytest.mark.parametrize(
    ("names", "first"),
    [
        ("node1", "node1"),
        ("a1,b2", "a1"),
        ("gpu[03-05,7],login1", "gpu03"),
        ("r[1-2]n[05-06]", "r1n05"),
        ("n[9,11]-ib", "n9-ib"),
        ("10.0.0.[1-4]", "10.0.0.1"),
    ],
)
def test_the_first_machine_of_a_list(names: str, first: str) -> None:
    assert first_of(names) == first


@pytest.mark.parametrize(
    "change",
    [
        {"SLURM_STEP_NUM_TASKS": "1", "SLURM_PROCID": "0"},  # srun of one task
        {"SLURM_STEP_NUM_TASKS": "1", "SLURM_STEP_ID": str(0xFFFFFFFA)},  # the shell of salloc
        {
            "SLURM_STEP_NUM_TASKS": None,
            "SLURM_STEP_ID": None,
            "SLURM_PROCID": "0",
        },  # a batch script with --ntasks=4
        {"SLURM_STEP_ID": str(0xFFFFFFFB)},  # the batch step itself
        {"RANK": "0", "WORLD_SIZE": "1"},  # a launcher stands between
    ],
)
def test_variables_of_an_allocation_are_no_ranks(change: dict[str, str | None]) -> None:
    environment = {k: v for k, v in {**STEP, **change}.items() if v is not None}
    before = dict(environment)
    assert not find_rank(environment)
    assert environment == before


def test_what_is_set_already_stays() -> None:
    environment = {**STEP, "MASTER_ADDR": "head", "MASTER_PORT": "5"}
    find_rank(environment)
    assert (environment["MASTER_ADDR"], environment["MASTER_PORT"]) == ("head", "5")


def test_a_rank_beyond_the_tasks_is_an_error() -> None:
    with pytest.raises(ValueError, match="SLURM_PROCID is 4"):
        find_rank({**STEP, "SLURM_PROCID": "4"})


@pytest.mark.distributed
def test_two_tasks_of_srun_form_a_group() -> None:
    program = (
        "import torch; from accelify.runtime import Accelerator; a = Accelerator(cpu=True)\n"
        "total = a.reduce(torch.tensor([a.process_index + 1.0]), reduction='sum')\n"
        "print(a.num_processes, a.local_process_index, float(total))"
    )
    step = {
        **STEP,
        "SLURM_JOB_ID": str(os.getpid()),
        "SLURM_STEP_NUM_TASKS": "2",
        "SLURM_STEP_NODELIST": "127.0.0.1",
        "SLURM_STEP_TASKS_PER_NODE": "2",
    }
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM_", "MASTER_"))}
    tasks = [
        subprocess.Popen(
            [sys.executable, "-c", program],
            env={**clean, **step, "SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank), "SLURM_NODEID": "0"},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    # torch 2.9 says on standard output who is connected.
    told = [task.communicate(timeout=120)[0].splitlines(keepends=True)[-1] for task in tasks]
    assert told == ["2 0 3.0\n", "2 1 3.0\n"]
