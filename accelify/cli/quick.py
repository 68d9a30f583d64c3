"""`accelify check` without typer, whose import takes as long as a quick look."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

from accelify.cli.check_run import Options, OutputFormat, run_check


def parsed(words: Sequence[str]) -> tuple[list[Path], Options] | None:
    """The paths and options of a command line; None where typer has to read it.

    Args:
        words: what comes after `check`.
    """
    flags = {f"--{one.name.replace('_', '-')}": one.name for one in fields(Options) if one.default is False}
    options, paths = Options(), []
    if stated := os.environ.get("ACCELIFY_CACHE_DIR"):
        options.cache_dir = Path(stated)
    for word in words:
        if word in flags:
            setattr(options, flags[word], True)
        elif word in _FORMATS:
            options.output_format = _FORMATS[word]
        elif word.startswith("-") and word != "-":
            return None
        else:
            paths.append(Path(word))
    return (paths, options) if paths else None


_FORMATS = {f"--output-format={one}": one for one in OutputFormat}


def check_quickly(words: Sequence[str]) -> None:
    """Check what a command line names, and exit; come back where typer has to read it."""
    found = parsed(words)
    if found is not None:
        run_check(*found)
