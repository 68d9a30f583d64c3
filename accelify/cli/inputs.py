"""From the paths on the command line to the scripts to work on."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from accelify.cache import Cache
from accelify.files_read import looking
from accelify.project import Imports
from accelify.source import Source, SourceError, find_scripts, python_files

STDIN = Path("-")
_SHOWN = 5  # files named on one line
# Why scripts of a folder are not worked on by themselves.
IGNORED = "left out, as Git ignores {them}{way}"
EXCLUDED = "left out, as `exclude` names {them}"
TESTS = "left out, as in a folder of tests (name a file to convert it)"
PART = "not converted by {themselves}: imported by a script that is"


class Runtime(StrEnum):
    """What a converted script imports."""

    ACCELIFY = "accelify"
    ACCELERATE = "accelerate"


@dataclass
class Inputs:
    """The scripts to work on, each once.

    `named` are those that the user named: for them a problem is an error, while a script found in a folder is skipped
    with a message. `roots` has the folder under which each script was found (its parent folder for a named one).
    `searched` has, for each folder argument, the numbers of Python files looked at and of scripts found, and
    `entries` those of its scripts that no other file imports.
    """

    scripts: list[Path] = field(default_factory=list)
    named: set[Path] = field(default_factory=set)
    roots: dict[Path, Path] = field(default_factory=dict)
    searched: dict[Path, tuple[int, int]] = field(default_factory=dict)
    entries: dict[Path, list[Path]] = field(default_factory=dict)
    imports: Imports = field(default_factory=Imports)
    # Scripts of a folder argument that are not worked on, and why.
    left_out: dict[Path, str] = field(default_factory=dict)
    # Files and folders below a folder argument that could not be read, and why.
    unread: list[tuple[Path, str]] = field(default_factory=list)
    # Modules that are copied to another folder with the scripts that import them.
    copied: list[str] = field(default_factory=list)

    def describe_search(self) -> list[str]:
        """One line for each folder searched: what was looked at and what was found."""
        lines = []
        for folder, (looked_at, found) in self.searched.items():
            line = f"{folder}: looked at {looked_at} Python {_plural(looked_at, 'file')}, {found} with a training loop"
            entries = [path for path in self.entries.get(folder, []) if path not in self.left_out]
            lines.append(line + _from(folder, entries))
        lines += self.describe_left_out(" (name a file, or give --no-respect-gitignore)")
        if self.copied:
            lines.append(f"copied unchanged (imported by the scripts): {_some(self.copied)}")
        return lines

    def describe_left_out(self, way: str = "") -> list[str]:
        """A line for each reason why scripts are left out; `way` says how those come in that Git ignores."""
        lines = []
        for why in dict.fromkeys(self.left_out.values()):
            paths = [str(path) for path, reason in self.left_out.items() if reason == why]
            words = ("it", "itself") if len(paths) == 1 else ("them", "themselves")
            reason = why.format(them=words[0], themselves=words[1], way=way)
            lines.append(f"{reason}: {_some(paths)}")
        return lines

    def is_part_of(self, path: Path, starters: Iterable[Path]) -> bool:
        """Whether a script of a folder is a module that one of some others imports."""
        return any(path.resolve() in self.imports.reached(starter) for starter in starters)


def collect(paths: Sequence[Path], *, need_scripts: bool = True, cache: Cache | None = None) -> Inputs:
    """The scripts that `paths` (files and folders) stand for; what a folder has may be known from a cache.

    Raises SourceError where a path does not exist or a folder has no Python file, and with `need_scripts` also where
    none of its files has a training loop.
    """
    inputs = Inputs()
    seen: set[Path] = set()
    for path in paths:
        if path.is_dir():
            if need_scripts:
                found = _search(path, inputs.imports)
            else:
                found = _searched(path, inputs.imports, cache) if cache else _to_check(path, inputs.imports)
            if not found.looked_at:
                raise SourceError(
                    f"{path} holds no Python file: name the script, or the folder it is in.", path
                )
            candidates, root = found.candidates, path
            inputs.unread += found.unread
            inputs.left_out.update(dict.fromkeys(found.tests, TESTS))
            if not candidates and need_scripts:
                raise SourceError(
                    f"{path} holds no training script ({found.looked_at} Python "
                    f"{_plural(found.looked_at, 'file')} looked at, none that uses torch and calls backward): "
                    "name the script to convert.",
                    path,
                )
            inputs.searched[path] = (found.looked_at, found.scripts)
            inputs.entries[path] = found.entries
        elif path.exists():
            candidates, root = [path], path.parent
            inputs.named.add(path)
        else:
            raise SourceError(f"{path} does not exist: check the path.", path)
        for candidate in candidates:
            if (place := candidate.resolve()) not in seen:
                seen.add(place)
                inputs.scripts.append(candidate)
                inputs.roots[candidate] = root
    return inputs


class _Searched(NamedTuple):
    """What a folder has: how many Python files and scripts with a training loop, what to work on, what starts it,
    what cannot be read, and scripts to convert that are tests."""

    looked_at: int
    scripts: int
    candidates: list[Path]
    entries: list[Path]
    unread: list[tuple[Path, str]]
    tests: Sequence[Path] = ()


def _to_check(folder: Path, imports: Imports) -> _Searched:
    """The scripts of a folder, and what may be started and leads to one, whoever imports it."""
    found = find_scripts(folder)
    known = set(found.scripts)
    starters = [
        path
        for path in found.started
        if path not in known and not _is_no_entry(path) and imports.leads_to_training(path)
    ]
    candidates = [script for script in (*starters, *found.scripts) if not _is_test(script, folder)]
    return _Searched(found.looked_at, len(found.scripts), candidates, [], found.unread)


def _searched(folder: Path, imports: Imports, cache: Cache) -> _Searched:
    key = ["folder", str(folder), str(folder.resolve()), os.environ.get("PYTHONPATH", "")]
    known = cache.get(key) if cache is not None else None
    if known is not None:
        looked_at, scripts, names, unread = known
        candidates = [folder / name for name in names]
        return _Searched(looked_at, scripts, candidates, [], [(Path(path), why) for path, why in unread])
    with looking() as looks:
        found = _to_check(folder, imports)
    names = [str(one.relative_to(folder)) for one in found.candidates]
    unread = [(str(path), why) for path, why in found.unread]
    cache.put(key, looks, [found.looked_at, found.scripts, names, unread])
    return found


def _search(folder: Path, imports: Imports) -> _Searched:
    found = find_scripts(folder)
    entries = imports.entries(python_files(folder))
    scripts = [script for script in found.scripts if not _is_test(script, folder)]
    candidates = _entries_first(entries, scripts, imports)
    candidates = [script for script in candidates if not _is_test(script, folder)]
    known = set(entries)
    starting = [one for one in candidates if one in known]
    tests = [script for script in found.scripts if _is_test(script, folder)]
    return _Searched(found.looked_at, len(found.scripts), candidates, starting, found.unread, tests)


def _entries_first(entries: Sequence[Path], scripts: Sequence[Path], imports: Imports) -> list[Path]:
    """The training scripts of a folder and the scripts that start them, those that nothing imports first."""
    known, first_ones = set(scripts), set(entries)
    starters = [
        path
        for path in entries
        if path not in known and not _is_no_entry(path) and imports.leads_to_training(path)
    ]
    first = [path for path in scripts if path in first_ones]
    return [*starters, *first, *(path for path in scripts if path not in first_ones)]


def _from(folder: Path, entries: Sequence[Path]) -> str:
    """`; entry points: train.py, tools/finetune.py`, the first few of them."""
    shown = [path.relative_to(folder).as_posix() for path in entries]
    return f"; entry {_plural(len(entries), 'point')}: {_some(shown)}" if shown else ""


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{', '.join(names[:_SHOWN])}{more}"


def _is_test(path: Path, folder: Path) -> bool:
    """Whether a script stands in a folder of tests: it trains to be checked, and stays as it is unless it is named."""
    return "tests" in path.relative_to(folder).parts[:-1]


def _is_no_entry(path: Path) -> bool:
    return path.name in ("__init__.py", "conftest.py", "setup.py") or path.name.startswith("test_")


def read_script(path: Path, name: Path | None = None) -> Source:
    """The script at `path`, or from standard input for `-`, as that of a file where it has a `name`.

    Raises SourceError where it is not Python text.
    """
    source = Source.from_bytes(sys.stdin.buffer.read(), name) if path == STDIN else Source.read(path)
    # Parsed here, so that what does not parse gets the sentence that names the line and the remedy.
    _ = source.tree
    return source


@contextmanager
def garbage_left() -> Iterator[None]:
    """Leave garbage lie meanwhile: a script's model is all needed to its end, and looking for garbage in it again and
    again makes the time grow faster than the script."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _plural(count: int, noun: str) -> str:
    return noun if count == 1 else f"{noun}s"
