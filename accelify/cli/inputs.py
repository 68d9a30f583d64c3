"""From the paths on the command line to the scripts to work on."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from accelify.project import Imports
from accelify.source import Source, SourceError, find_scripts, python_files

STDIN = Path("-")
_SHOWN = 5  # entry points named on one line


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

    def describe_search(self) -> list[str]:
        """One line for each folder searched: what was looked at and what was found."""
        lines = []
        for folder, (looked_at, found) in self.searched.items():
            line = f"{folder}: looked at {looked_at} Python {_plural(looked_at, 'file')}, {found} with a training loop"
            lines.append(line + _from(folder, self.entries.get(folder, [])))
        return lines

    def is_part_of(self, path: Path, starters: Iterable[Path]) -> bool:
        """Whether a script of a folder is a module that one of some others imports."""
        return any(path.resolve() in self.imports.reached(starter) for starter in starters)


def collect(paths: Sequence[Path], *, need_scripts: bool = True) -> Inputs:
    """The scripts that `paths` (files and folders) stand for.

    Raises SourceError where a path does not exist or a folder has no Python file, and with `need_scripts` also where
    none of its files has a training loop.
    """
    inputs = Inputs()
    seen: set[Path] = set()
    for path in paths:
        if path.is_dir():
            found = find_scripts(path)
            if not found.looked_at:
                raise SourceError(
                    f"{path} holds no Python file: name the script, or the folder it is in.", path
                )
            entries = inputs.imports.entries(python_files(path))
            scripts = [script for script in found.scripts if not _is_test(script, path)]
            candidates, root = _entries_first(entries, scripts, inputs.imports), path
            candidates = [script for script in candidates if not _is_test(script, path)]
            if not candidates and need_scripts:
                raise SourceError(
                    f"{path} holds no training script ({found.looked_at} Python "
                    f"{_plural(found.looked_at, 'file')} looked at, none that uses torch and calls backward): "
                    "name the script to convert.",
                    path,
                )
            inputs.searched[path] = (found.looked_at, len(found.scripts))
            inputs.entries[path] = [one for one in candidates if one in entries]
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


def _entries_first(entries: Sequence[Path], scripts: Sequence[Path], imports: Imports) -> list[Path]:
    """The training scripts of a folder and the scripts that start them, those that nothing imports first."""
    starters = [
        path
        for path in entries
        if path not in scripts and not _is_no_entry(path) and imports.leads_to_training(path)
    ]
    first = [path for path in scripts if path in entries]
    return [*starters, *first, *(path for path in scripts if path not in first)]


def _from(folder: Path, entries: Sequence[Path]) -> str:
    """`; entry points: train.py, tools/finetune.py`, the first few of them."""
    shown = [path.relative_to(folder).as_posix() for path in entries[:_SHOWN]]
    more = f" and {len(entries) - _SHOWN} more" if len(entries) > _SHOWN else ""
    return f"; entry {_plural(len(entries), 'point')}: {', '.join(shown)}{more}" if shown else ""


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
