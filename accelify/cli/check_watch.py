"""`accelify check --watch`: checks again whenever a file changes."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from accelify import looked_at, selection
from accelify.cli.check_run import Options, run_check
from accelify.cli.inputs import STDIN
from accelify.cli.terminal import complain, fail
from accelify.configuration import nearest_section
from accelify.installing import install_command

_ENDINGS = (".ipynb", ".toml")


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
    for _ in watch(*paths, watch_filter=PythonFilter(extra_extensions=_ENDINGS), raise_interrupt=True):
        _check(paths, once)
    raise SystemExit(0)


def _check(paths: list[Path], options: Options) -> None:
    looked_at.forget()
    nearest_section.cache_clear()
    selection.configured_at.cache_clear()
    if sys.stdout.isatty():
        print("\033[2J\033[H", end="")  # the screen is empty, as from its top
    try:
        run_check(paths, options)
    except SystemExit as stop:
        if stop.code == 0:
            complain("nothing found; watching for changes.")
        else:
            complain("watching for changes.")
    sys.stdout.flush()
