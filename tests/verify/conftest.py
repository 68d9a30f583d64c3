"""Runs for the tests: all of them from one interpreter, since each import of torch takes seconds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from accelify.verify import session
from accelify.verify.converted import Converted
from accelify.verify.nursery import Nursery
from accelify.verify.session import Report


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


@pytest.fixture(scope="session")
def nursery() -> Iterator[SharedNursery]:
    shared = SharedNursery(threads=1)
    yield shared
    shared.close()


@pytest.fixture
def verify_pair(
    nursery: SharedNursery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Report]:
    """Verify `train.py`, holding the given text of it against the given copy (a converter's, when None)."""

    def run(original: str, copy: str | None, **options: object) -> Report:
        script = tmp_path / "train.py"
        script.write_text(original)
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(session, "Nursery", lambda *_: nursery)
        monkeypatch.setattr(session, "_threads", lambda _: 1)
        converted = None if copy is None else Converted(files={script.resolve(): copy.encode()})
        return session.verify(Path("train.py"), converted=converted, **options)  # type: ignore[arg-type]

    return run
