"""How a verification says how far it is: what is run, and the steps and losses of the run as they come."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Protocol


class Progress(Protocol):
    """Called with what is being run, and again and again while it runs.

    Args:
        what: which run; empty for news of the run that was named last.
        step: optimizer steps so far.
        of: optimizer steps after which the run ends.
        loss: the last loss, None where there is none yet.
    """

    def __call__(self, what: str, step: int = 0, of: int = 0, loss: float | None = None) -> None: ...


def silent(what: str, step: int = 0, of: int = 0, loss: float | None = None) -> None:
    """Say nothing."""


class News:
    """Reads what a run has written so far, and passes its steps and last loss on.

    Args:
        path: the events of rank 0.
        steps: optimizer steps after which the run ends.
        progress: called where there is something new.
    """

    def __init__(self, path: Path, steps: int, progress: Progress) -> None:
        self.path = path
        self.steps = steps
        self.progress = progress
        self._read = 0
        self._made: dict[int, int] = {}
        self._loss: float | None = None

    def look(self) -> None:
        """Read on from where the last look ended. Costs nothing where nobody listens."""
        if self.progress is silent:
            return
        try:
            with open(self.path, "rb") as file:
                file.seek(self._read)
                data = file.read()
        except OSError:
            data = b""
        whole = data.rfind(b"\n") + 1
        self._read += whole
        new = False
        for line in data[:whole].splitlines():
            if line.startswith((b'{"event": "loss"', b'{"event": "step"')):
                event = json.loads(line)
                new = True
                if event["event"] == "loss":
                    self._loss = event["value"]
                else:
                    self._made[event["optimizer"]] = self._made.get(event["optimizer"], 0) + 1
        # Until the first of them there is nothing but the time to show.
        if new or not (self._made or self._loss is not None):
            self.progress("", max(self._made.values(), default=0), self.steps, self._loss)
