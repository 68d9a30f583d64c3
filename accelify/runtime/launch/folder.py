"""The launcher's temporary folder, and those of launchers that were killed outright."""

from __future__ import annotations

import contextlib
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

_PREFIX = "accelify-launch-"
_LOCK = "lock"


@contextlib.contextmanager
def launch_folder() -> Iterator[Path]:
    """A folder for as long as the block runs. Those of launchers that were killed (nobody could remove them then) go
    when the next one comes: one that lives holds a lock, which ends with its process whatever ends that."""
    _remove_abandoned()
    with tempfile.TemporaryDirectory(prefix=_PREFIX, ignore_cleanup_errors=True) as name:
        folder = Path(name)
        with open(folder / _LOCK, "w") as lock:
            _take(lock)
            yield folder


def _take(lock: IO[str]) -> bool:
    if sys.platform == "win32":
        return False
    import fcntl

    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _remove_abandoned() -> None:
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        # One without a lock file has just been made, or is another user's.
        with contextlib.suppress(OSError), open(folder / _LOCK, "r+") as lock:
            if _take(lock):
                shutil.rmtree(folder, ignore_errors=True)
