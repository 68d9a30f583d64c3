"""A launch that a signal ends while it waits for the other machines.

torch waits for them in C++, where none of Python's handlers of signals runs: only a thread sees that one came.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from accelify.runtime.launch.saying import say

# For this many seconds the launcher may end by itself.
_PATIENCE = 2.0


@contextlib.contextmanager
def ends_while_waiting(folder: Path) -> Iterator[None]:
    """Within, SIGINT and SIGTERM end the launcher as long as it has started no process.

    Args:
        folder: where each process leaves its number; it is deleted.
    """
    reads, writes = os.pipe()
    os.set_blocking(writes, False)
    before = signal.set_wakeup_fd(writes, warn_on_full_buffer=False)
    threading.Thread(target=_watch, args=(reads, folder), daemon=True).start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        os.close(writes)


def _watch(reads: int, folder: Path) -> None:
    while came := os.read(reads, 1):
        if came[0] not in (signal.SIGINT, signal.SIGTERM):
            continue
        time.sleep(_PATIENCE)
        if not any(folder.glob("*.pid")):
            say("ended while it waited for the other machines.")
            shutil.rmtree(folder, ignore_errors=True)
            os._exit(128 + came[0])
    os.close(reads)
