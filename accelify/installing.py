"""How to install what is missing: from where this copy of accelify came."""

from __future__ import annotations

from pathlib import Path


def install_command(extra: str) -> str:
    """`pip install '/home/me/accelify[runtime]'`: the command that adds an extra to this installation.

    Args:
        extra: its name in pyproject.toml.
    """
    return f"pip install '{_origin(extra)}'"


def _origin(extra: str) -> str:
    # Asked only where something is missing: these take longer to import than the rest of a short command.
    import importlib.metadata
    import json
    from urllib.parse import unquote, urlsplit

    try:
        noted = importlib.metadata.distribution("accelify").read_text("direct_url.json")
        origin = json.loads(noted or "{}")
    except (importlib.metadata.PackageNotFoundError, OSError, ValueError):
        origin = {}
    url = str(origin.get("url", ""))
    if url.startswith("file:"):
        return f"{unquote(urlsplit(url).path)}[{extra}]"
    if url:
        system = origin.get("vcs_info", {}).get("vcs")
        return f"accelify[{extra}] @ {f'{system}+' if system else ''}{url}"
    clone = Path(__file__).parents[1]
    return f"{clone}[{extra}]" if (clone / "pyproject.toml").is_file() else f"accelify[{extra}]"
