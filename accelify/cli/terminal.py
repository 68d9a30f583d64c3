"""What the commands print and where: colours and progress only for people, plain text for pipes."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NoReturn, TextIO, TypeVar

if TYPE_CHECKING:
    from rich.progress import Progress

_Result = TypeVar("_Result")
CONVERTED, NEEDS_A_PERSON, BAD_INPUT = 0, 1, 2
PATIENCE = 1.0  # seconds without a progress bar
QUIET, NORMAL, VERBOSE = -1, 0, 1
amount = NORMAL
"""How much the command that runs says: set once, from its --quiet and --verbose."""


def fail(sentence: str) -> NoReturn:
    """End the command for bad usage or unreadable input: `sentence` on standard error, exit code 2."""
    complain(sentence)
    raise SystemExit(BAD_INPUT)


def complain(sentence: str) -> None:
    """Print one sentence about a problem on standard error."""
    print(f"accelify: {sentence}", file=sys.stderr)


def coloured(stream: TextIO) -> bool:
    """Whether to colour what goes to `stream`: a terminal, unless NO_COLOR or TERM=dumb says no, or FORCE_COLOR yes."""
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or (stream.isatty() and os.environ.get("TERM") != "dumb")


def width(stream: TextIO) -> int:
    """How many columns lines may have that go to `stream`: those of the terminal, 0 for as many as there are."""
    return shutil.get_terminal_size().columns if stream.isatty() else 0


def write_bytes(data: bytes) -> None:
    """Write `data` to standard output as it is, in step with what was printed before."""
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def followed(results: Iterable[_Result], total: int, verb: str) -> Iterator[_Result]:
    """Yield results as they come; after a second, and only on a terminal, with a progress bar on standard error."""
    bar: Progress | None = None
    started = time.monotonic()
    try:
        begun = started
        for number, result in enumerate(results):
            late = time.monotonic() - started > PATIENCE
            path = getattr(result, "path", result)
            if bar is None and late and amount == NORMAL and sys.stderr.isatty():
                bar = _progress_bar()
                task = bar.add_task(verb, total=total)
            if bar is not None:
                bar.update(task, completed=number, description=f"{verb} {getattr(path, 'name', path)}")
            yield result
            if amount == VERBOSE:
                print(f"{verb} {path}: {time.monotonic() - begun:.1f} s", file=sys.stderr)
            begun = time.monotonic()
    finally:
        if bar is not None:
            bar.stop()


@contextlib.contextmanager
def waiting(what: str) -> Iterator[None]:
    """Say on standard error what is waited for; on a terminal with the time that it has taken."""
    if not sys.stderr.isatty():
        complain(f"{what} ...")
        yield
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        bar.add_task(what, total=None)
        yield


def _progress_bar() -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    # Scripts take so unlike that no time that is left can be said.
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    bar.start()
    return bar
