"""`accelify check --fix` and `--diff`: one script with its findings fixed, written or shown."""

from __future__ import annotations

import sys
from pathlib import Path

from accelify.cli.checking import Asked
from accelify.cli.inputs import garbage_left
from accelify.cli.terminal import coloured, write_bytes
from accelify.conversion import CONVERTED, Conversion
from accelify.fixing import fixed
from accelify.project import Imports
from accelify.report.diff import unified_diff
from accelify.source import Source, write_all


def fix_script(path: Path, asked: Asked, imports: Imports, *, unsafe: bool, only_diff: bool) -> int:
    """Fix what can be fixed in a script; gives how many findings that are.

    Args:
        path: the script.
        asked: what the user chose.
        imports: what the files of its project import.
        unsafe: make also fixes that may change what it does.
        only_diff: show what would change, and write nothing.

    Raises:
        SourceError: it cannot be read or written.
    """
    before = Source.read(path)
    with garbage_left():
        after, number = fixed(before, imports, asked.select, asked.ignore, unsafe=unsafe)
    if after.text == before.text:
        return 0
    if only_diff:
        change = Conversion(before, CONVERTED, new_text=after.text)
        write_bytes(unified_diff(change, colour=coloured(sys.stdout)))
    else:
        write_all([(path, after.encode())])
    return number
