"""Runs scripts as if on a GPU, on machines that have none: `python tests/gpu/run_simulated.py --each SCRIPT ...`."""

from __future__ import annotations

import atexit
import gc
import importlib
import os
import runpy
import sys
from typing import NoReturn

from accelify.verify.simulated_gpu.installation import install


def run(script: str) -> None:
    """Run a script in this process, in its folder, and say on standard error how much of it ran on the GPU."""
    kernels = install()
    sys.argv = [os.path.abspath(script), *sys.argv[2:]]
    sys.path.insert(0, os.path.dirname(sys.argv[0]))
    os.chdir(sys.path[0])
    runpy.run_path(sys.argv[0], run_name="__main__")
    print(f"kernels on the simulated GPU: {kernels.count}", file=sys.stderr)


def run_each(scripts: list[str]) -> None:
    """Run scripts one after another, each in a process of its own that has torch already.

    One line for each: its exit status and its path. What it says goes to `SCRIPT.log`.
    """
    for name in ("torch._dynamo", "accelify.runtime"):
        importlib.import_module(name)  # what every one of them would read anew
    gc.freeze()
    for script in scripts:
        child = os.fork()
        if not child:
            log = os.open(f"{script}.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(log, 1)
            os.dup2(log, 2)
            sys.argv = ["", script]
            _run_and_end(script)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), script, flush=True)


def _run_and_end(script: str) -> NoReturn:
    """Run a script and end this process, but without what takes an interpreter with torch most of a second: taking
    all modules down."""
    status = 1
    try:
        run(script)
        status = 0
    except SystemExit as stop:
        status = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    if sys.argv[1] == "--each":
        run_each(sys.argv[2:])
    else:
        run(sys.argv[1])
