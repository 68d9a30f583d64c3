"""Scripts beside the one that is converted which load weights into a `DataParallel`: they want `module.` in the names.

Seen from their words, in the script's own folder, and only of scripts that take something from the same modules.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from accelify.analysis.script import ScriptModel

_WRAPS = re.compile(rb"^[ \t]*([A-Za-z_][\w.]*)[ \t]*=[ \t]*(?:[\w.]*\.)?DataParallel\(", re.MULTILINE)
_IMPORTS = re.compile(rb"^[ \t]*(?:from|import)[ \t]+([A-Za-z_][\w.]*)", re.MULTILINE)
# Who writes the prefix somewhere minds it, and so does who asks for it in a name.
_MINDS = re.compile(rb"""module\.['"]|['"]module['"]\s+(?:not\s+)?in\b|\.startswith\(['"]module['"]""")
_LARGEST = 1_000_000
_MOST = 300


def loading_into_wrappers(script: ScriptModel) -> Iterator[tuple[str, int]]:
    """The names of such scripts, each with the line in which it loads."""
    if script.path is None:
        return
    own = {m.path.resolve() for m in script.modules if m.path is not None} | {script.path.resolve()}
    shared = {name.encode() for name in script.program.modules if name != "__main__"}
    shared.add(script.path.stem.encode())
    for path in sorted(script.path.parent.glob("*.py"))[:_MOST]:
        data = b"" if path.resolve() in own else _read(path)
        if b"DataParallel(" not in data or _MINDS.search(data) is not None:
            continue
        if b".backward(" in data and b".state_dict()" in data:
            continue  # it trains, and loads what it has saved itself
        if not shared & {match[1] for match in _IMPORTS.finditer(data)}:
            continue
        for match in _WRAPS.finditer(data):
            loads = re.compile(rb"(?<![\w.])" + re.escape(match[1]) + rb"\.load_state_dict\(")
            found = loads.search(data, match.end())
            if found is not None:
                yield path.name, data.count(b"\n", 0, found.start()) + 1
                break


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes() if path.stat().st_size <= _LARGEST else b""
    except OSError:
        return b""


__all__ = ["loading_into_wrappers"]
