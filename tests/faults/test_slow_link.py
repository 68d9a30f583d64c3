"""A slow link between two hosts: ranks are idle for long, in every collective, and the job goes on."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.launch.hosts import two_hosts

pytestmark = pytest.mark.distributed
ROOT = str(Path(__file__).parents[2])
TRAIN = """\
import sys, time
import torch
from torch.utils.data import DataLoader, TensorDataset
from accelify.runtime import Accelerator

accelerator = Accelerator(cpu=True)
torch.manual_seed(0)
# 4 MB, which take half a minute at 1 Mbit/s.
model = torch.nn.Linear(1000, 1000)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer, loader = accelerator.prepare(
    model, optimizer, DataLoader(TensorDataset(torch.ones(4, 1000)), batch_size=2)
)
for x, in loader:
    began = time.monotonic()
    accelerator.backward(model(x).square().mean())
    took = time.monotonic() - began
    optimizer.step()
    optimizer.zero_grad()
accelerator.save_state(sys.argv[1])
total = sum(float(p.detach().double().sum()) for p in model.parameters())
print(f"rank {accelerator.process_index} backward {took:.1f} total {total:.9f}", flush=True)
"""


def test_a_slow_link(tmp_path):
    (tmp_path / "train.py").write_text(TRAIN)
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("ACCELIFY_", "GLOO_", "SLURM_"))}
    with two_hosts() as hosts:
        hosts.slow("1mbit")
        launchers = [
            subprocess.Popen(
                [
                    "ip", "netns", "exec", name, sys.executable, "-m", "accelify", "launch", "--cpu", "-n", "2",
                    "--num_machines", "2", "--main_process_ip", "10.98.0.1", "--machine_rank", str(number),
                    "train.py", str(tmp_path / "state"),
                ],
                cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                env={**clean, "PYTHONPATH": ROOT, "HF_HOME": str(tmp_path / "none")},
            )
            for number, name in enumerate(hosts.names)
        ]  # fmt: skip
        try:
            outputs = [launcher.communicate(timeout=300)[0] for launcher in launchers]
        finally:
            for launcher in launchers:
                launcher.kill()
    assert [launcher.returncode for launcher in launchers] == [0, 0], "\n".join(outputs)
    words = [next(line for line in text.splitlines() if line.startswith("rank ")).split() for text in outputs]
    # It was the link that was waited for, longer than any idleness that was once taken for a deadlock.
    assert min(float(line[3]) for line in words) > 20
    assert words[0][5] == words[1][5]
    assert (tmp_path / "state" / "accelify-checkpoint.json").is_file()
