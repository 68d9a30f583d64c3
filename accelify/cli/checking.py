"""What `check` finds in scripts: what was found before, as long as that holds, and the rest on all cores."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from accelify.cache import Cache
from accelify.cli.inputs import STDIN, garbage_left, read_script
from accelify.configuration import nearest_section
from accelify.files_read import looking
from accelify.findings import Finding, Safety, Severity
from accelify.project import Imports
from accelify.screen import has_nothing_to_say
from accelify.source import ConfigurationError, SourceError

# Scripts from which on other processes are worth their start.
_SEVERAL = 2


@dataclass(frozen=True)
class Asked:
    """What the user chose for the findings of each script."""

    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    name: Path | None = None
    # What the user named; the others were found in folders.
    named: frozenset[Path] = frozenset()
    only_distributed: bool = False


@dataclass
class Checked:
    """The findings of a script, each with its line of code, or the sentence that says why there are none.

    `edits` and `left` are what `convert` makes of it, and leaves to a person, whatever is shown.
    """

    path: Path
    findings: list[tuple[Finding, str]] = field(default_factory=list)
    edits: int = 0
    left: int = 0
    problem: str = ""
    misconfigured: bool = False


def check_all(
    paths: Sequence[Path], asked: Asked, imports: Imports, cache: Cache | None
) -> Iterator[Checked]:
    """Check scripts, in any order.

    Args:
        paths: the scripts; `-` is standard input.
        asked: what the user chose.
        imports: what the files of their projects import.
        cache: of what was found before; None for none.
    """
    left = []
    for path in paths:
        known = _known(path, asked, cache)
        if known is None:
            left.append(path)
        else:
            yield known
    cores = min(len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1, len(left))
    if len(left) < _SEVERAL or cores < 2:
        for path in left:
            yield check_one(path, asked, imports, cache)
        return
    yield from _on_cores(left, asked, imports, cache, cores)


def check_one(path: Path, asked: Asked, imports: Imports, cache: Cache | None) -> Checked:
    """Check one script, and note what is found."""
    if cache is None or path == STDIN:
        return _checked(path, asked, imports)
    with looking() as looks:
        found = _checked(path, asked, imports)
    if not found.problem:
        listed = [[asdict(finding), line] for finding, line in found.findings]
        cache.put(_key(path, asked), looks, [listed, found.edits, found.left])
    return found


def _checked(path: Path, asked: Asked, imports: Imports) -> Checked:
    try:
        with garbage_left():
            source = read_script(path, asked.name)
            if asked.select or asked.ignore or nearest_section(_folder(source.path)) is not None:
                from accelify.selection import selection_for

                selection_for(source.path, asked.select, asked.ignore)  # says what makes no sense
            if has_nothing_to_say(source, imports, path == STDIN or path in asked.named):
                return Checked(path)
            from accelify.conversion import FAILED
            from accelify.fixing import marked
            from accelify.linting import lint, script_line

            linted = lint(
                source, imports, asked.select, asked.ignore, only_distributed=asked.only_distributed
            )
            found = marked(linted)
    except SourceError as error:
        return Checked(path, problem=str(error), misconfigured=isinstance(error, ConfigurationError))
    except Exception as error:  # one odd script must not keep the others from being checked
        if os.environ.get("ACCELIFY_TRACEBACK"):
            raise
        why = f"accelify itself failed on it ({type(error).__name__}: {error}); please report this script"
        return Checked(path, problem=f"{path}: {why}.")
    failed = next((one.reason for one in linted.conversions if one.status == FAILED), None)
    if failed is not None:
        return Checked(path, problem=f"{path}: {failed}.")
    own = str(source.path or "<stdin>")
    conversions = [one.published() for one in linted.conversions if one.changed]
    return Checked(
        path,
        [(source.place(one), script_line(one, source if one.path == own else None)) for one in found],
        sum(len(one.applied) for one in conversions),
        sum(len(one.left) for one in conversions),
    )


def _folder(path: Path | None) -> Path:
    return path.resolve().parent if path is not None else Path.cwd()


def _known(path: Path, asked: Asked, cache: Cache | None) -> Checked | None:
    if cache is None or path == STDIN:
        return None
    try:
        known = cache.get(_key(path, asked))
    except ConfigurationError:
        return None
    if known is None:
        return None
    listed, edits, left = known
    return Checked(path, [(_finding(one), line) for one, line in listed], edits, left)


def _key(path: Path, asked: Asked) -> object:
    """What the findings of a script go by beside the files that are looked at."""
    place = path.resolve()
    configured = [str(one) for one in nearest_section(place.parent) or ()]
    around = os.environ.get("PYTHONPATH", "")
    return [
        *("script", str(path), str(place), path in asked.named),
        *(asked.select, asked.ignore, asked.only_distributed, configured, around),
    ]


def _finding(known: dict[str, Any]) -> Finding:
    return Finding(
        **{
            **known,
            "severity": Severity(known["severity"]),
            "safety": Safety(known["safety"]),
            "evidence": tuple(known["evidence"]),
        }
    )


_WAY = "fork" if sys.platform == "linux" else "spawn"
# What each of several processes works with.
_work: tuple[Asked, Imports, Cache | None]


def _on_cores(
    paths: Sequence[Path], asked: Asked, imports: Imports, cache: Cache | None, cores: int
) -> Iterator[Checked]:
    # What a copy of this process would have to import for itself.
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor, as_completed
    from concurrent.futures.process import BrokenProcessPool

    import accelify.convert
    import accelify.linting  # noqa: F401

    gc.freeze()
    way = multiprocessing.get_context(_WAY)
    # What was looked at is known in a copy of this process alone.
    imports = imports if _WAY == "fork" else Imports()
    missing = dict.fromkeys(paths)
    try:
        with ProcessPoolExecutor(cores, way, _begin, (asked, imports, cache)) as pool:
            try:
                for done in as_completed([pool.submit(_check, path) for path in paths]):
                    found = done.result()
                    del missing[found.path]
                    yield found
            except (KeyboardInterrupt, GeneratorExit):
                for process in multiprocessing.active_children():
                    process.terminate()
                raise
    except BrokenProcessPool:  # one was ended from outside
        for path in missing:
            yield check_one(path, asked, imports, cache)


def _begin(asked: Asked, imports: Imports, cache: Cache | None) -> None:
    global _work
    _work = asked, imports, cache
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _check(path: Path) -> Checked:
    return check_one(path, *_work)
