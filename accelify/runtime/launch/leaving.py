"""What a launch says and does where a signal has come and it is not at its end soon after.

While it waits for other machines, torch is in C++, where none of Python's handlers of signals runs: only a thread sees
that one came.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

from accelify.runtime.launch.saying import say

# For this many seconds the launcher may end by itself.
_PATIENCE = 2.0


@contextlib.contextmanager
def watched_signals(folder: Path, grace: int, machines: bool) -> Iterator[None]:
    """Within, SIGINT and SIGTERM end a launcher that waits for other machines and has started no process; where it
    waits for its processes to end, a message says so.

    Args:
        folder: where each process leaves its number; it is deleted with the launcher that is ended.
        grace: for how many seconds processes may save and end.
        machines: there are several.
    """
    reads, writes = os.pipe()
    os.set_blocking(writes, False)
    before = signal.set_wakeup_fd(writes, warn_on_full_buffer=False)
    over = threading.Event()
    threading.Thread(target=_watch, args=(reads, folder, grace, machines, over), daemon=True).start()
    try:
        yield
    finally:
        over.set()
        signal.set_wakeup_fd(before)
        os.close(writes)


def _watch(reads: int, folder: Path, grace: int, machines: bool, over: threading.Event) -> None:
    waits = False
    while came := os.read(reads, 1):
        if came[0] not in (signal.SIGINT, signal.SIGTERM) or over.wait(_PATIENCE):
            continue
        if machines and not any(folder.glob("*.pid")):
            say("ended while it waited for the other machines.")
            shutil.rmtree(folder, ignore_errors=True)
            os._exit(128 + came[0])
        if not waits and grace > _PATIENCE:
            say(
                f"the processes have up to {grace} s to save and end (--preemption_grace); Ctrl-C once more ends them "
                "at once."
            )
        waits = True
    os.close(reads)
