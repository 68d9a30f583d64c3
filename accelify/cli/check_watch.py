"""`accelify check --watch`: checks again whenever a file changes."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from accelify import files_read, selection
from accelify.cli.check_run import Options, run_check
from accelify.cli.inputs import STDIN
from accelify.cli.terminal import coloured, complain, fail, width
from accelify.configuration import nearest_section
from accelify.installing import install_command
from accelify.report.style import styled

_ENDINGS = (".ipynb", ".toml")
# Changed files that are named, and the least columns of the line between two runs.
_NAMED, _NARROWEST = 3, 40


def check_again(paths: list[Path], options: Options) -> NoReturn:
    """Check some paths now and after each change below them, until it is interrupted."""
    try:
        from watchfiles import PythonFilter, watch
    except ImportError:
        fail(f"--watch needs watchfiles: {install_command('watch')}.")
    if STDIN in paths:
        fail("--watch is for files: name the script or folder.")
    if missing := [path for path in paths if not path.exists()]:
        fail(f"{missing[0]} does not exist: check the path.")
    once = replace(options, watch=False)
    _check(paths, once)
    for changes in watch(*paths, watch_filter=PythonFilter(extra_extensions=_ENDINGS), raise_interrupt=True):
        _check(paths, once, sorted({Path(path).name for _, path in changes}))
    raise SystemExit(0)


def _check(paths: list[Path], options: Options, changed: Iterable[str] = ()) -> None:
    files_read.forget()
    nearest_section.cache_clear()
    selection.configured_at.cache_clear()
    if sys.stdout.isatty() and (names := list(changed)):
        print(_between(names))
    try:
        run_check(paths, options)
    except SystemExit as stop:
        sys.stdout.flush()
        complain("nothing found; watching for changes." if stop.code == 0 else "watching for changes.")


def _between(names: list[str]) -> str:
    """The line between two runs: when the second began, and why."""
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    text = f"---- {time.strftime('%H:%M:%S')} {', '.join(names[:_NAMED])}{more} changed "
    return "\n" + styled(text.ljust(max(width(sys.stdout), _NARROWEST), "-"), "bold", coloured(sys.stdout))
