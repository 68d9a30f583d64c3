"""Tracebacks that end at the script's line, where the runtime raises an error for what the script did."""

from __future__ import annotations

import sys
from types import TracebackType


def shorten() -> None:
    """Show uncaught errors so, as `accelify launch` does, where nothing else shows them; ACCELIFY_TRACEBACK=1 in the
    environment shows them whole."""
    if sys.excepthook is sys.__excepthook__:
        sys.excepthook = _show


def _show(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    from accelify.runtime.launch.worker import own_frames

    own_frames(error)
    sys.__excepthook__(kind, error, error.__traceback__ or trace)
