"""How to install what is missing: from where this copy of accelify came, as no package index has it."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

# Extras that bring torch: the release that was tested is the one that constraints.txt of a clone names. (`tpu` names
# another one, which torch_xla needs.)
WITH_TORCH = frozenset({"deepspeed", "runtime"})


def install_command(extra: str) -> str:
    """`pip install '/home/me/accelify[runtime]'`, in backquotes: the command that adds an extra to this installation.

    Args:
        extra: its name in pyproject.toml.
    """
    source = clone()
    if source is None:
        return f"`pip install {shlex.quote(_elsewhere(extra))}`"
    limits = source / "constraints.txt"
    limited = f"-c {shlex.quote(str(limits))} " if extra in WITH_TORCH and limits.is_file() else ""
    return f"`pip install {limited}'{source}[{extra}]'`"


def clone() -> Path | None:
    """The folder or file of this machine that this copy was installed from, or is run in; None where there is none."""
    url = str(_origin().get("url", ""))
    if url:
        from urllib.parse import unquote, urlsplit

        return Path(unquote(urlsplit(url).path)) if url.startswith("file:") else None
    here = Path(__file__).parents[1]
    return here if (here / "pyproject.toml").is_file() else None


def _elsewhere(extra: str) -> str:
    origin = _origin()
    if url := origin.get("url"):
        system = origin.get("vcs_info", {}).get("vcs")
        return f"accelify[{extra}] @ {f'{system}+' if system else ''}{url}"
    return f"FOLDER-OF-ACCELIFY[{extra}]"  # nothing says where it came from: its folder is for the user to fill in


def _origin() -> dict[str, Any]:
    # Asked only where something is missing: these take longer to import than the rest of a short command.
    import importlib.metadata
    import json

    try:
        noted = importlib.metadata.distribution("accelify").read_text("direct_url.json")
        found = json.loads(noted or "{}")
    except (importlib.metadata.PackageNotFoundError, OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
