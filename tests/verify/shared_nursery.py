"""Runs of all verifications from one interpreter, since each import of torch takes seconds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from accelify.verify import session
from accelify.verify.nursery import Nursery


class SharedNursery(Nursery):
    """A nursery that outlives a verification."""

    _is_ready = False

    def ready(self) -> None:
        if not self._is_ready:
            super().ready()
            self._is_ready = True

    def __exit__(self, *_: object) -> None:
        running = self.running()
        assert not running, f"left behind: {running}"


@contextmanager
def installed(nursery: SharedNursery) -> Iterator[None]:
    """Let what is verified meanwhile run from this nursery, with its one thread."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session, "Nursery", lambda *_: nursery)
        patch.setattr(session, "_threads", lambda _: 1)
        yield
