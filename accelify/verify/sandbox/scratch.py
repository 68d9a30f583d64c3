"""The private folder of one run: its results, its temporary files, and what it wrote."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile
import threading
from pathlib import Path


class Scratch:
    """Makes the folder; `close` removes it.

    `results` takes what the recorder writes and `temporary` represents the system's temporary folder; both are real
    places for the run. `layers` holds what the run writes anywhere else.
    """

    def __init__(self) -> None:
        self.home = Path(os.path.realpath(tempfile.mkdtemp(prefix="accelify-verify-")))
        self.results = self.home / "results"
        self.temporary = self.home / "tmp"
        self.layers = self.home / "layers"
        self.root = self.home / "root"
        self._tidying: threading.Thread | None = None
        for folder in (self.results, self.temporary, self.layers, self.root):
            folder.mkdir()

    def tidy(self) -> None:
        """Remove what nobody reads once the run has ended, while others go on."""
        self._tidying = threading.Thread(target=remove, args=(self.home / "work",), daemon=True)
        self._tidying.start()

    def close(self) -> None:
        """Remove everything, whatever modes the run has left."""
        if self._tidying is not None:
            self._tidying.join()
        remove(self.home)


def remove(folder: Path) -> None:
    """Remove a folder and all in it; links are removed, never what they point to, and nothing that is mounted there."""
    for _ in range(3):
        if not _opened_up(folder):
            return
        shutil.rmtree(folder, ignore_errors=True)
        if not os.path.lexists(folder):
            return


def _opened_up(folder: Path) -> bool:
    """Let folders without permissions be listed: an overlay's work folder has none, and a script may take them away.

    False where another file system is mounted in it.
    """
    waiting = [str(folder)]
    device = os.lstat(folder).st_dev if os.path.lexists(folder) else None
    while waiting:
        current = waiting.pop()
        with contextlib.suppress(OSError):
            found = os.lstat(current)
            if found.st_dev != device:
                return False
            if stat.S_IMODE(found.st_mode) & 0o700 != 0o700:
                os.chmod(current, 0o700)
            with os.scandir(current) as entries:
                waiting += [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
    return True
