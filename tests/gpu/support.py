"""Scripts run on the simulated GPU, several in one process that has torch already."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
SIMULATOR = Path(__file__).with_name("simulated_gpu.py")


@dataclass(frozen=True)
class Outcome:
    """How a script's run ended. `kernels`: how many operations ran on the GPU."""

    status: int
    output: str

    @property
    def kernels(self) -> int:
        return int(self.output.rsplit("kernels on the simulated GPU: ", 1)[1].split()[0])


def run_on_gpu(scripts: list[Path]) -> dict[Path, Outcome]:
    """Run scripts one after another, each in its folder."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(SIMULATOR), "--each", *[str(script) for script in scripts]]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    found = {}
    for line in done.stdout.splitlines():
        status, path = line.split(maxsplit=1)
        found[Path(path)] = Outcome(int(status), Path(f"{path}.log").read_text())
    return found
