"""What is seen on a terminal while processes start; nothing where the output is no terminal."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

_PAUSE = 0.1  # seconds between two looks
_REST_OF_LINE = "\033[K"  # is emptied


class Starting:
    """A line on standard error that says at once how many processes are started, and for how long, until all run.

    Args:
        count: how many.
        shown: whether there is such a line at all.
    """

    def __init__(self, count: int, *, shown: bool = True) -> None:
        self.folder: Path | None = None
        """Where each process leaves its number, once there is such a folder."""
        self._count = count
        self._ended = threading.Event()
        self._since = time.monotonic()
        self._shown = shown
        self._thread = threading.Thread(target=self._show, daemon=True)

    def __enter__(self) -> Starting:
        if self._shown and sys.stderr.isatty():
            self._say("starting")
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End the line."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()

    def _show(self) -> None:
        while not self._ended.wait(_PAUSE) and not self._all_run():
            self._say("starting")
        self._say("started" if self._all_run() else "starting", "\n")

    def _all_run(self) -> bool:
        return self.folder is not None and len(list(self.folder.glob("*.pid"))) >= self._count

    def _say(self, what: str, end: str = "") -> None:
        seconds = round(time.monotonic() - self._since)
        after = f" ({seconds} s)" if seconds else ""
        text = f"accelify launch: {what} {self._count} processes{after}"
        print(f"\r{text}{_REST_OF_LINE}", end=end, file=sys.stderr, flush=True)
