"""What every observer of a run shares: where it writes its events, and where in the script it is."""

from __future__ import annotations

import ast
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from accelify.verify.events import EventWriter
from accelify.verify.observe.sites import Sites


class Context:
    """One process's observation.

    Args:
        writer: takes the events.
        rank: number of this process, from 0.
        world: how many processes the run has.
        tree: see `Sites`.

    `step` is the number of optimizer steps so far, counted by the recorder. `rewrite` changes the tree of a file of the
    user's before it is compiled, `at_end` are called when the run is over.
    """

    def __init__(self, writer: EventWriter, rank: int = 0, world: int = 1, tree: str = "") -> None:
        self.writer = writer
        self.rank = rank
        self.world = world
        self.sites = Sites(tree)
        self.tree = tree
        self.step = 0
        self.rewrite: Callable[[ast.Module, str], None] | None = None
        self.at_end: list[Callable[[], None]] = []
        self._paused = threading.local()

    def emit(self, kind: str, /, **fields: Any) -> None:
        """Write an event of that kind."""
        self.writer.write({"event": kind, **fields})

    def emit_here(self, kind: str, /, **fields: Any) -> None:
        """Write an event with the statement of the user's code that is running and the number of steps so far."""
        with self.pause():
            site = self.sites.here()
        self.writer.write({"event": kind, "site": site, "step": self.step, **fields})

    def translate(self, path: str) -> str:
        """The path that the user knows for a real one of this run."""
        return path.removeprefix(self.tree)

    @property
    def paused(self) -> bool:
        """Whether what happens now is the observers' doing, not the script's."""
        return getattr(self._paused, "depth", 0) > 0

    @contextmanager
    def pause(self) -> Iterator[None]:
        """While entered in this thread, observers pay no attention."""
        self._paused.depth = getattr(self._paused, "depth", 0) + 1
        try:
            yield
        finally:
            self._paused.depth -= 1
