"""From which folder the names of a script's imports begin: above its folder where it imports its own package."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from accelify.source import read_bytes

_IMPORT = re.compile(rb"^[ \t]*(?:from|import)[ \t]+([\w.]+)", re.MULTILINE)
# How many folders above a script are looked at.
_HIGHEST = 5


def import_root(script: Path, modules: Iterable[Path]) -> Path:
    """The folder under which a script and its modules find each other, in another place too.

    `project/driver/train.py` with `from driver.helper import Helper` needs `project`; with `from helper import Helper`
    the script's folder is enough.

    Args:
        script: without links.
        modules: the files of the project that run where it is started, without links.
    """
    folder, files = script.parent, list(modules)
    names = {
        found.decode(errors="replace")
        for path in [script, *files]
        for found in _IMPORT.findall(read_bytes(path))
    }
    # What stands in the script's folder is found there first.
    names = {name for name in names if not _is_in(folder, name.partition(".")[0])}
    root = folder
    for above in list(folder.parents)[:_HIGHEST]:
        inside = [
            path.relative_to(above).with_suffix("").parts for path in files if path.is_relative_to(folder)
        ]
        dotted = {".".join(parts) for parts in inside}
        if any(one == name or one.startswith(f"{name}.") for one in dotted for name in names):
            root = above
    return root


def _is_in(folder: Path, name: str) -> bool:
    return not name or (folder / name).is_dir() or (folder / f"{name}.py").is_file()
