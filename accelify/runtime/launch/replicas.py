"""Starts a script in one process for each XLA device, by torch_xla's launcher. Run by path, as worker.py is."""

from __future__ import annotations

import os
import sys


def _replica(index: int, arguments: list[str]) -> None:
    import worker  # type: ignore[import-not-found]

    sys.argv = ["", *arguments]
    worker.main()


def main() -> None:
    try:
        import torch_xla
    except ImportError as error:
        from accelify.installing import install_command

        sys.exit(f"accelify launch: TPU needs torch_xla ({error}): {install_command('tpu')}")
    # On a TPU torch_xla starts a process for each chip; on the CPU CPU_NUM_DEVICES says how many.
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    torch_xla.launch(_replica, args=(sys.argv[1:],))


if __name__ == "__main__":
    main()
