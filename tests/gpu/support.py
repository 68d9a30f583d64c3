"""The scripts that run on a GPU before and after conversion, and the simulated one that runs them."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
SIMULATOR = Path(__file__).with_name("run_simulated.py")
FIXTURES = ROOT / "fixtures"
SCRIPTS = Path(__file__).with_name("scripts")
NEEDS = {
    "progress_bar_and_writer": ("tqdm", "tensorboard"),
    "metrics_lists": ("numpy",),
    "lbfgs_closure": ("numpy",),
}
FIXED = sorted(
    path.parent.name
    for path in FIXTURES.glob("*/before.py")
    if all(importlib.util.find_spec(name) for name in NEEDS.get(path.parent.name, ()))
)
# They ask for no device: verify runs them on CPUs only.
WITHOUT_GPU = ["actor_critic", "graph_convolution", "lbfgs_closure", "regression_by_hand", "reinforce"]
# Those that tests/test_fixture_behaviour.py does not run on a simulated GPU.
UNVERIFIED = [kind for kind in FIXED if kind.startswith("ddp_") or kind in WITHOUT_GPU]
KINDS = sorted(
    path.stem for path in SCRIPTS.iterdir() if path.suffix == ".py" or (path / "train.py").exists()
)
DEVICE_ERROR = re.compile(
    r"same device|device type tensor|1D CPU int64|indices should be|type's device|CUDA error"
)


def script_of(kind: str) -> Path:
    """The file that runs, of one of `KINDS`."""
    path = SCRIPTS / f"{kind}.py"
    return path if path.exists() else SCRIPTS / kind / "train.py"


def is_said(kind: str) -> bool:
    """Whether a finding tells that the converted script of one of `KINDS` fails."""
    return script_of(kind).read_text().startswith("# said:")


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
