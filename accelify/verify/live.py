"""What is seen while a verification runs, on a terminal only: which run, its steps, its loss, the time that is left."""

from __future__ import annotations

import time
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.status import Status

_SPINNER = 2  # columns in front of the line


class Live:
    """A line on a terminal that changes as the runs go on; nothing where the output is no terminal.

    Args:
        console: where it is shown.
        shown: whether to show anything.
        lines: whether each run gets a line of its own when it begins, for terminals and files alike.
    """

    def __init__(self, console: Console, shown: bool, lines: bool = False) -> None:
        self._screen = console
        self._console = console if lines else None
        self._status: Status | None = console.status("starting") if shown else None
        self._what = ""
        self._since = 0.0

    def __enter__(self) -> Live:
        if self._status is not None:
            self._status.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._status is not None:
            self._status.stop()

    def __call__(self, what: str, step: int = 0, of: int = 0, loss: float | None = None) -> None:
        """Take in what `Progress` says."""
        if self._console is not None and what:
            self._console.print(what, highlight=False, markup=False)
        if self._status is None:
            return
        if what:
            self._what, self._since = what, time.monotonic()
            self._status.update(what)
            return
        room = self._screen.width - _SPINNER
        self._status.update(describe(self._what, step, of, loss, time.monotonic() - self._since, room))


def describe(what: str, step: int, of: int, loss: float | None, seconds: float, room: int) -> str:
    """`the original on 1 process: step 7 of 20, loss 0.6931, about 4 s left`, in `room` columns: the name is cut."""
    if not step and loss is None:
        parts = ["starting", *([f"{seconds:.0f} s"] if seconds >= 1 else [])]
    else:
        parts = [f"step {step} of {of}" if step <= of else f"step {step}"]
    if loss is not None:
        parts.append(f"loss {loss:.4g}")
    if 0 < step < of and seconds > 1:
        parts.append(f"about {seconds / step * (of - step):.0f} s left")
    state = f": {', '.join(parts)}"
    if len(what) + len(state) > room:
        what = f"{what[: max(room - len(state) - 1, 0)].rstrip()}…"
    return what + state
