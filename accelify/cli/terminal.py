"""What the commands print and where: colours and progress only for people, plain text for pipes."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TextIO

import typer

if TYPE_CHECKING:
    from rich.progress import Progress

CONVERTED, NEEDS_A_PERSON, BAD_INPUT = 0, 1, 2
PATIENCE = 1.0  # seconds without a progress bar
QUIET, NORMAL, VERBOSE = -1, 0, 1
amount = NORMAL
"""How much the command that runs says: set once, from its --quiet and --verbose."""


def fail(sentence: str) -> NoReturn:
    """End the command for bad usage or unreadable input: `sentence` on standard error, exit code 2."""
    complain(sentence)
    raise typer.Exit(BAD_INPUT)


def complain(sentence: str) -> None:
    """Print one sentence about a problem on standard error."""
    print(f"accelify: {sentence}", file=sys.stderr)


def coloured(stream: TextIO) -> bool:
    """Whether to colour what goes to `stream`: a terminal, unless NO_COLOR or TERM=dumb says no, or FORCE_COLOR yes."""
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or (stream.isatty() and os.environ.get("TERM") != "dumb")


def write_bytes(data: bytes) -> None:
    """Write `data` to standard output as it is, in step with what was printed before."""
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def track(paths: Iterable[Path], total: int, verb: str) -> Iterator[Path]:
    """Yield `paths` one by one; after a second, and only on a terminal, with a progress bar on standard error."""
    bar: Progress | None = None
    started = time.monotonic()
    try:
        for number, path in enumerate(paths):
            late = time.monotonic() - started > PATIENCE
            if bar is None and late and amount == NORMAL and sys.stderr.isatty():
                bar = _progress_bar()
                task = bar.add_task(verb, total=total)
            if bar is not None:
                bar.update(task, completed=number, description=f"{verb} {path.name}")
            begun = time.monotonic()
            yield path
            if amount == VERBOSE:
                print(f"{verb} {path}: {time.monotonic() - begun:.1f} s", file=sys.stderr)
    finally:
        if bar is not None:
            bar.stop()


def _progress_bar() -> Progress:
    from rich.console import Console
    from rich.progress import Progress

    bar = Progress(console=Console(stderr=True), transient=True)
    bar.start()
    return bar
