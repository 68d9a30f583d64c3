"""The deepspeed package: importing it for the device of a run, and what it compiles with."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import torch

from accelify.installing import install_command

from ..state import PartialState


def load_deepspeed(device: torch.device) -> Any:
    """The deepspeed package, made to work on `device`.

    Raises:
        ImportError: it is not installed, in one line.
        ValueError: it was imported by the script for another device.
    """
    if "deepspeed" not in sys.modules:
        os.environ.setdefault("DS_ACCELERATOR", device.type)
    _find_ninja()
    try:
        import deepspeed
    except ModuleNotFoundError as error:
        if error.name != "deepspeed":
            raise
        raise ImportError(
            f"the DeepSpeed engine needs deepspeed, which is not installed: {install_command('deepspeed')}"
        ) from None
    # torch's names for these are new; shown once a call, they would fill the screen.
    warnings.filterwarnings(
        "ignore", r"`torch\.distributed\.\w+` is deprecated. Please use", FutureWarning, r"torch\.distributed"
    )
    logging.getLogger("DeepSpeed").setLevel(os.environ.get("DEEPSPEED_LOG_LEVEL", "error").upper())
    from deepspeed.accelerator import get_accelerator

    used = get_accelerator().device_name()
    if used != device.type:
        raise ValueError(
            f"deepspeed works on {used} and this run on {device.type}: import accelify before deepspeed, or set "
            f"DS_ACCELERATOR={device.type}"
        )
    return deepspeed


def _find_ninja() -> None:
    """DeepSpeed compiles its operations with ninja, which pip puts beside Python, where PATH need not lead."""
    beside = os.path.dirname(sys.executable)
    if shutil.which("ninja") is None and shutil.which("ninja", path=beside) is not None:
        os.environ["PATH"] = os.pathsep.join([beside, os.environ.get("PATH", "")])


def tell_of_locks() -> None:
    """Print what is waited for, since DeepSpeed waits without a message, also for a process killed long ago."""
    home = Path(os.environ.get("TORCH_EXTENSIONS_DIR") or Path.home() / ".cache" / "torch_extensions")
    for lock in (*home.glob("deepspeed*/lock"), *home.glob("*/deepspeed*/lock")):
        with contextlib.suppress(OSError):
            # A short one is another rank's that looks whether there is something to compile.
            if time.time() - lock.stat().st_mtime < 60:
                continue
        PartialState().print(
            "accelify: DeepSpeed waits for another process that compiles its operations; where none does, since it "
            f"was killed, delete {lock}"
        )
