"""The hint on how to install what is missing names the place that this copy came from."""

from __future__ import annotations

import importlib.metadata
import json
from pathlib import Path
from typing import Any

import pytest

from accelify.installing import install_command

CLONE = Path(__file__).parents[1]


@pytest.mark.parametrize(
    ("origin", "expected"),
    [
        ({"url": "file:///home/me/my%20clone", "dir_info": {}}, "pip install '/home/me/my clone[runtime]'"),
        (
            {"url": "https://host/accelify.git", "vcs_info": {"vcs": "git"}},
            "pip install 'accelify[runtime] @ git+https://host/accelify.git'",
        ),
        ({"url": "https://host/accelify.whl"}, "pip install 'accelify[runtime] @ https://host/accelify.whl'"),
        (None, f"pip install '{CLONE}[runtime]'"),
    ],
)
def test_the_command(origin: dict[str, Any] | None, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Installed:
        def read_text(self, name: str) -> str | None:
            assert name == "direct_url.json"
            return None if origin is None else json.dumps(origin)

    monkeypatch.setattr(importlib.metadata, "distribution", lambda name: Installed())
    assert install_command("runtime") == expected


def test_in_a_clone_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "distribution", missing)
    assert install_command("plot") == f"pip install '{CLONE}[plot]'"
