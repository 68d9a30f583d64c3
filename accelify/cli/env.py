"""`accelify env`: what an issue report needs."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
from pathlib import Path

import accelify

PACKAGES = (
    "torch", "numpy", "safetensors", "pyyaml", "typer", "accelerate", "transformers", "deepspeed", "torch_xla",
    "triton",
)  # fmt: skip
# Of the environment, what changes how a job runs; nothing that could be a secret.
VARIABLES = (
    "ACCELIFY_", "ACCELERATE_", "NCCL_", "GLOO_", "TORCH_", "TORCHELASTIC_", "XLA_", "PJRT_", "CUDA_VISIBLE_DEVICES",
    "CPU_NUM_DEVICES", "OMP_NUM_THREADS", "MASTER_", "RANK", "WORLD_SIZE", "LOCAL_RANK", "SLURM_JOB", "SLURM_N",
    "HF_HOME",
)  # fmt: skip


def env() -> None:
    """Print what an issue report needs: versions, devices, variables and the configuration file."""
    rows = [
        ("accelify", f"{accelify.__version__} in {Path(accelify.__file__).parent}"),
        ("Python", f"{platform.python_version()} in {sys.executable}"),
        ("system", platform.platform()),
        ("CPU", f"{os.cpu_count()} cores, {_memory()}"),
        *((name, _version(name)) for name in PACKAGES),
    ]
    try:
        rows += _devices()
    except ImportError:
        rows.append(("devices", "unknown without torch"))
    print("\n".join(f"- {name}: {value}" for name, value in rows))
    found = {name: value for name, value in sorted(os.environ.items()) if name.startswith(VARIABLES)}
    print("- environment:" + ("" if found else " no variable that accelify or its launchers read is set"))
    for name, value in found.items():
        print(f"    {name}={value}")
    _print_configuration()


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _memory() -> str:
    try:
        size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return "memory unknown"
    return f"{size / 2**30:.0f} GiB"


def _devices() -> list[tuple[str, str]]:
    import torch
    import torch.distributed as dist

    names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    rows = [
        ("torch is built for", f"CUDA {torch.version.cuda}" if torch.version.cuda else "the CPU"),
        ("GPUs", ", ".join(f"{names.count(name)} x {name}" for name in sorted(set(names))) or "none"),
    ]
    if torch.backends.mps.is_available():
        rows.append(("MPS", "available"))
    ways = {
        "gloo": dist.is_available() and dist.is_gloo_available(),
        "nccl": dist.is_available() and dist.is_nccl_available(),
        "mpi": dist.is_available() and dist.is_mpi_available(),
    }
    rows.append(("communication", ", ".join(name for name, there in ways.items() if there) or "none"))
    return rows


def _print_configuration() -> None:
    try:
        from accelify.runtime.launch.config_file import default_path
    except ImportError:
        return
    path = default_path()
    if not path.is_file():
        print(f"- configuration: no file at {path}")
        return
    print(f"- configuration: {path}")
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        print(f"    {line}")
