"""Verifications of texts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from accelify.verify import session
from accelify.verify.converted import Converted
from accelify.verify.session import Report
from tests.verify.shared_nursery import SharedNursery, installed


@pytest.fixture
def verify_pair(
    nursery: SharedNursery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Report]:
    """Verify `train.py`, holding the given text of it against the given copy (a converter's, when None)."""

    def run(original: str, copy: str | None, **options: object) -> Report:
        script = tmp_path / "train.py"
        script.write_text(original)
        monkeypatch.chdir(tmp_path)
        converted = None if copy is None else Converted(files={script.resolve(): copy.encode()})
        with installed(nursery):
            return session.verify(Path("train.py"), converted=converted, **options)  # type: ignore[arg-type]

    return run
