"""The hint on how to install what is missing names the place that this copy came from."""

from __future__ import annotations

import importlib.metadata
import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from accelify import installing
from accelify.installing import install_command

CLONE = Path(__file__).parents[1]


@pytest.mark.parametrize(
    ("origin", "expected"),
    [
        ({"url": "file:///home/me/my%20clone", "dir_info": {}}, "`pip install '/home/me/my clone[runtime]'`"),
        (
            {"url": "https://host/accelify.git", "vcs_info": {"vcs": "git"}},
            "`pip install 'accelify[runtime] @ git+https://host/accelify.git'`",
        ),
        (
            {"url": "https://host/accelify.whl"},
            "`pip install 'accelify[runtime] @ https://host/accelify.whl'`",
        ),
        (None, f"`pip install -c {CLONE}/constraints.txt '{CLONE}[runtime]'`"),
    ],
)
def test_the_command(origin: dict[str, Any] | None, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Installed:
        def read_text(self, name: str) -> str | None:
            assert name == "direct_url.json"
            return None if origin is None else json.dumps(origin)

    monkeypatch.setattr(importlib.metadata, "distribution", lambda name: Installed())
    assert install_command("runtime") == expected


def test_without_a_trace_of_where_it_came_from_no_index_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(installing, "__file__", str(tmp_path / "accelify" / "installing.py"))
    monkeypatch.setattr(installing, "_origin", dict)
    assert installing.clone() is None
    assert install_command("server") == "`pip install 'FOLDER-OF-ACCELIFY[server]'`"


def test_extras_with_the_tested_release_of_torch_are_those_that_bring_torch_unpinned() -> None:
    extras = tomllib.loads((CLONE / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    bring = {name for name, needs in extras.items() if any(one.startswith("torch>") for one in needs)}
    bring |= {name for name, needs in extras.items() if "accelify[runtime]" in needs}
    assert bring == installing.WITH_TORCH


def test_no_text_installs_from_an_index() -> None:
    texts = [CLONE / "README.md", *(CLONE / "docs").rglob("*.md"), *(CLONE / "docs").rglob("*.yml")]
    texts += (CLONE / "accelify").rglob("*.py")
    asks = re.compile(r"""pip install (?:-\S+ )*['"]?accelify\b""")
    found = [path.name for path in texts if asks.search(path.read_text()) is not None]
    assert found == ["troubleshooting.md"]  # which says that it finds nothing


def test_in_a_clone_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "distribution", missing)
    assert install_command("plot") == f"`pip install '{CLONE}[plot]'`"
