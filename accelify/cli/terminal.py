"""What the commands print and where: colours and progress only for people, plain text for pipes."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NoReturn, TextIO, TypeVar

if TYPE_CHECKING:
    from pathlib import Path

    from rich.progress import Progress

_Result = TypeVar("_Result")
CONVERTED, NEEDS_A_PERSON, BAD_INPUT = 0, 1, 2
PATIENCE = 1.0  # seconds without a progress bar
_BETWEEN = "  "  # two columns
_NARROWEST = 12  # that a column gets
QUIET, NORMAL, VERBOSE = -1, 0, 1
amount = NORMAL
"""How much the command that runs says: set once, from its --quiet and --verbose."""


def fail(sentence: str) -> NoReturn:
    """End the command for bad usage or unreadable input: `sentence` on standard error, exit code 2."""
    complain(sentence)
    raise SystemExit(BAD_INPUT)


def complain(sentence: str) -> None:
    """Print one sentence about a problem on standard error, or several, a line each."""
    from accelify.report.style import wrapped

    for line in f"accelify: {sentence}".split("\n"):
        print(wrapped(line, width(sys.stderr)), file=sys.stderr)


def say_written(*files: Path | None) -> None:
    """Say on standard error, as standard output may be a pipe's, where files that were asked for are."""
    for file in files:
        if file is not None and amount != QUIET:
            print(f"Written: {file}", file=sys.stderr)


def coloured(stream: TextIO) -> bool:
    """Whether to colour what goes to `stream`: a terminal, unless NO_COLOR or TERM=dumb says no, or FORCE_COLOR yes."""
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or (stream.isatty() and os.environ.get("TERM") != "dumb")


def width(stream: TextIO) -> int:
    """How many columns lines may have that go to `stream`: those of the terminal, 0 for as many as there are."""
    return shutil.get_terminal_size().columns if stream.isatty() else 0


def print_rows(rows: Sequence[Sequence[str]], indent: str = "", colours: Sequence[str] = ()) -> None:
    """Print rows as columns; on a terminal that is narrower the longest cells wrap, but for those of the first column.

    Args:
        rows: of cells, all with as many.
        indent: in front of each line.
        colours: of the second cell, one a row, as numbers of ECMA-48; empty: of the terminal.
    """
    import textwrap

    sizes = [max(map(len, column)) for column in zip(*rows, strict=True)]
    room = width(sys.stdout) - len(indent) - len(_BETWEEN) * (len(sizes) - 1)
    while sum(sizes) > room > 0 and max(sizes[1:]) > _NARROWEST:
        sizes[max(range(1, len(sizes)), key=sizes.__getitem__)] -= 1
    for number, row in enumerate(rows):
        cells = [
            textwrap.wrap(cell, size, break_on_hyphens=False) for cell, size in zip(row, sizes, strict=True)
        ]
        for line in itertools.zip_longest(*cells, fillvalue=""):
            shown = [f"{part:<{size}}" for part, size in zip(line, sizes, strict=True)]
            if colours:
                shown[1] = f"\033[{colours[number]}m{shown[1]}\033[0m"
            print(indent + _BETWEEN.join(shown).rstrip())


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
                task = bar.add_task(verb, total=total, name=getattr(path, "name", path))
            if bar is not None:
                bar.update(task, completed=number + (path is not result), name=getattr(path, "name", path))
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
    from rich.table import Column

    # Scripts take so unlike that no time that is left can be said. A long name is cut, and nothing else.
    name = TextColumn("{task.fields[name]}", table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis"))
    columns = (
        TextColumn("{task.description}"),
        BarColumn(20),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        name,
    )
    bar = Progress(*columns, console=Console(stderr=True), transient=True, expand=True)
    bar.start()
    return bar
