"""Signals by which a queue announces its time limit."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any


def watch(note: Callable[[], None], signals: tuple[int, ...] = ()) -> bool:
    """Call `note` for each of the signals from now on, in place of what they do.

    Args:
        note: called in the main thread.
        signals: default SIGTERM, and SIGUSR1 where nothing else waits for it.

    Returns:
        Whether the launcher had a warning for this process already, before it could watch for one.
    """

    def handle(*_: Any) -> None:
        note()

    warning = getattr(signal, "SIGUSR1", None)
    chosen = signals or (signal.SIGTERM,)
    # One that is not Python's, such as faulthandler's, comes as None.
    if not signals and warning is not None and signal.getsignal(warning) in (signal.SIG_DFL, signal.SIG_IGN):
        chosen = (*chosen, warning)
    for number in chosen:
        signal.signal(number, handle)
    folder = os.environ.get("ACCELIFY_ERROR_DIR")
    return warning in chosen and folder is not None and os.path.exists(os.path.join(folder, "preempted"))
