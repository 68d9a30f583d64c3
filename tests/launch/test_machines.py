"""Jobs on two hosts: two network namespaces with one cable between them that can be pulled."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from accelify.runtime.launch.machines import interface_of, own_address, reachable
from tests.launch.hosts import Hosts, two_hosts

LAUNCH = [sys.executable, "-m", "accelify", "launch", "--cpu", "-n", "2", "--num_machines", "2"]
ROOT = str(Path(__file__).parents[2])
PATIENCE = 5
TRAIN = """\
import sys, time
from pathlib import Path
import torch
from torch.utils.data import DataLoader, TensorDataset
from accelify.runtime import Accelerator

class Progress:
    step = 0
    def state_dict(self): return {"step": self.step}
    def load_state_dict(self, state): self.step = state["step"]

folder, steps = Path(sys.argv[1]), int(sys.argv[2])
accelerator = Accelerator()
torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = TensorDataset(torch.ones(8, 4), torch.ones(8, 1))
model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(data, batch_size=2))
progress = Progress()
accelerator.register_for_checkpointing(progress)
if (folder / "state").exists():
    accelerator.load_state(folder / "state")
    print("RESUMED", progress.step, flush=True)
while progress.step < steps:
    for x, y in loader:
        accelerator.backward(torch.nn.functional.mse_loss(model(x), y))
        optimizer.step()
        optimizer.zero_grad()
        progress.step += 1
        if progress.step % 5 == 0:
            accelerator.save_state(folder / "state")
        accelerator.print("STEP", progress.step, flush=True)
        time.sleep(0.1)
print("DONE", accelerator.process_index, accelerator.num_processes, progress.step, flush=True)
"""


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    with two_hosts() as made:
        yield made


class Job:
    """The job's launchers, one a host, with what they print in files."""

    def __init__(self, hosts: Hosts, folder: Path, steps: int, *options: str) -> None:
        (folder / "train.py").write_text(TRAIN)
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("ACCELIFY_", "GLOO_", "SLURM_"))}
        self.outputs = [folder / f"host{number}.txt" for number in (0, 1)]
        self.launchers = []
        for number, name in enumerate(hosts.names):
            with self.outputs[number].open("w") as output:
                words = [
                    "ip", "netns", "exec", name, *LAUNCH, "--main_process_ip", "10.98.0.1", "--machine_rank",
                    str(number), "--machine_timeout", str(PATIENCE), *options, "train.py", str(folder), str(steps),
                ]  # fmt: skip
                self.launchers.append(
                    subprocess.Popen(
                        words,
                        cwd=folder,
                        stdout=output,
                        stderr=subprocess.STDOUT,
                        env={**clean, "PYTHONPATH": ROOT, "HF_HOME": str(folder / "none")},
                    )
                )

    def wait_for(self, line: str) -> None:
        deadline = time.monotonic() + 200
        while line not in self.outputs[0].read_text():
            assert time.monotonic() < deadline, self.stated()
            assert self.launchers[0].poll() is None, self.stated()
            time.sleep(0.1)

    def end(self) -> list[int]:
        try:
            return [launcher.wait(timeout=200) for launcher in self.launchers]
        finally:
            for launcher in self.launchers:
                launcher.kill()

    def stated(self) -> str:
        return "\n".join(output.read_text() for output in self.outputs)


@pytest.mark.distributed
def test_a_job_runs_across_two_hosts(hosts: Hosts, tmp_path: Path) -> None:
    job = Job(hosts, tmp_path, 8)
    assert job.end() == [0, 0], job.stated()
    for number, output in enumerate(job.outputs):
        assert f"DONE {number} 2 8" in output.read_text()


@pytest.mark.distributed
def test_a_host_cut_off_ends_the_job_with_a_clear_error(hosts: Hosts, tmp_path: Path) -> None:
    job = Job(hosts, tmp_path, 100_000)
    job.wait_for("STEP 4")
    hosts.cut()
    started = time.monotonic()
    assert job.end() == [1, 1], job.stated()
    # gloo alone would wait for half an hour.
    assert time.monotonic() - started < 90
    for number, other in ((0, "machine 1 (10.98.0.2)"), (1, "machine 0 (10.98.0.1)")):
        last = job.outputs[number].read_text().splitlines()[-1]
        assert last == (
            f"accelify launch: the job was ended: {other} was not heard of for {PATIENCE} s: it is down, or cut off "
            "from here."
        )


@pytest.mark.distributed
def test_a_host_that_comes_back_resumes_from_the_last_checkpoint(hosts: Hosts, tmp_path: Path) -> None:
    job = Job(hosts, tmp_path, 40, "--max_restarts", "2")
    job.wait_for("STEP 12")
    hosts.cut()
    job.wait_for("waiting for it to come back")
    hosts.plug_in()
    assert job.end() == [0, 0], job.stated()
    resumed = [int(line.split()[1]) for line in job.stated().splitlines() if line.startswith("RESUMED")]
    assert len(resumed) == 2
    assert resumed[0] == resumed[1]
    assert resumed[0] >= 10
    assert resumed[0] % 5 == 0
    assert "DONE 0 2 40" in job.stated()
    assert "DONE 1 2 40" in job.stated()


def test_the_way_to_the_first_machine() -> None:
    assert own_address("127.0.0.1", 29500) == "127.0.0.1"
    assert own_address("no such host", 29500) is None
    assert interface_of("203.0.113.77") is None
    if sys.platform.startswith("linux"):
        assert interface_of("127.0.0.1") == "lo"
    assert not reachable("127.0.0.1", 1, 0)
