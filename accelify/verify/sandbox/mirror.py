"""A folder tree that looks like the one around the script, for a run that must not write beside it.

Folders are real, Python files are copies, everything else is a link to the original. What is above and beside the
project is linked, so that `../data` is found. `calls` makes private copies of links before they are written to.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from accelify.verify.sandbox.scratch import Scratch
from accelify.verify.sandbox.tree import Tree

ENTRIES = 2000
"""Entries of the project mirrored one by one; folders beyond are linked whole and opened up on demand."""
SMALL = 256 * 1024
"""Bytes up to which a file is copied instead of linked, so that programs without a guard cannot write through."""
SMALL_TOTAL = 64 * 1024 * 1024
_LINKED_WHOLE = {".git", ".hg", ".svn", "node_modules", ".tox", ".nox"}
_SKIPPED = {"__pycache__"}
_ROOT_MARKS = (".git", "pyproject.toml", "setup.py", "setup.cfg")


class Mirror:
    """One mirror on disk, removed with the run's folder.

    Args:
        scratch: the folder of the run.
        script: the script, whose folder (and project, if it has one) is mirrored.
        working: the folder from which the script is run, mirrored too.
        replaced: original path to bytes that are in its place, for converted files.
    """

    def __init__(
        self, scratch: Scratch, script: Path, working: Path, replaced: dict[Path, bytes] | None = None
    ) -> None:
        self.home = scratch.home
        self.tree = self.home / "tree"
        self.links = Tree(str(self.home))
        os.symlink("/", self.links.through)
        self.script = Path(os.path.realpath(script))
        self.working = Path(os.path.realpath(working))
        self.projects = _without_nested([project_root(self.script.parent), self.working])
        self.tree.mkdir()
        self._copied = 0
        self._left = ENTRIES
        # The script's folder comes first, whatever else is in the project.
        for folder in dict.fromkeys([self.script.parent, *self.projects]):
            self._real_folder(folder)
            if _is_general(folder):
                self._link_entries(folder)
            else:
                self._fill(folder)
        for path, data in {self.script: self.script.read_bytes(), **(replaced or {})}.items():
            self._replace(path, data)

    def path(self, original: Path) -> Path:
        """Where `original` (absolute) is in the mirror."""
        return self.tree / str(original).lstrip("/")

    def translate(self, word: str) -> str:
        """`word` of the command line, with an absolute path inside a mirrored folder turned into the mirror's."""
        for project in self.projects:
            for prefix in ("", word.partition("=")[0] + "="):
                if word == f"{prefix}{project}" or word.startswith(f"{prefix}{project}/"):
                    return prefix + str(self.path(Path(word.removeprefix(prefix))))
        return word

    def _real_folder(self, folder: Path) -> None:
        """Make `folder` and everything above it real, with links to what is beside."""
        original, mirrored = Path("/"), self.tree
        for part in ("", *folder.parts[1:]):
            original, mirrored = original / part, mirrored / part
            if mirrored.is_symlink():
                mirrored.unlink()
            if part == "" or not mirrored.is_dir():
                mirrored.mkdir(exist_ok=True)
                if original != folder:
                    self._link_entries(original)

    def _link_entries(self, folder: Path) -> None:
        target = self.path(folder)
        for entry in _entries(folder):
            place = target / entry.name
            if not os.path.lexists(place) and Path(entry.path) != self.home:
                self.links.link(entry.path, str(place))

    def _fill(self, root: Path) -> None:
        waiting = [root]
        while waiting:
            folder = waiting.pop(0)
            target = self.path(folder)
            target.mkdir(exist_ok=True)
            for entry in _entries(folder):
                if entry.name in _SKIPPED or Path(entry.path) == self.home:
                    continue
                place = target / entry.name
                if place.is_dir() and not place.is_symlink():
                    # Made real already: it is on the way to a folder that was mirrored first, or is that folder.
                    if Path(entry.path) != self.script.parent:
                        waiting.append(Path(entry.path))
                    continue
                self._left -= 1
                if entry.is_dir(follow_symlinks=False) and self._left > 0 and _worth_opening(entry):
                    waiting.append(Path(entry.path))
                    place.unlink(missing_ok=True)
                    place.mkdir()
                else:
                    self._place_file(entry, place)

    def _place_file(self, entry: os.DirEntry[str], place: Path) -> None:
        if place.is_file() and not place.is_symlink():
            return
        # Files can come and go while they are mirrored (caches, logs of a run beside this one).
        place.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            if entry.is_file(follow_symlinks=False):
                size = entry.stat().st_size
                if entry.name.endswith(".py") or (size <= SMALL and self._copied + size <= SMALL_TOTAL):
                    self._copied += size
                    shutil.copy2(entry.path, place)
                    place.chmod(place.stat().st_mode | 0o200)
                    self.links.note(entry.path, str(place))
                    return
        self.links.link(entry.path, str(place))

    def _replace(self, path: Path, data: bytes) -> None:
        path = Path(os.path.realpath(path))
        self._real_folder(path.parent)
        self._link_entries(path.parent)
        place = self.path(path)
        place.unlink(missing_ok=True)
        place.write_bytes(data)


def project_root(folder: Path) -> Path:
    """The project that `folder` belongs to, or `folder` itself where nothing marks one."""
    for candidate in (folder, *folder.parents):
        if _is_general(candidate):
            break
        if any((candidate / mark).exists() for mark in _ROOT_MARKS):
            return candidate
    return folder


def _is_general(folder: Path) -> bool:
    """Whether `folder` is no project but contains many: a home directory, the root, the temporary folder."""
    home = Path(os.path.realpath(Path.home()))
    general = {home, *home.parents, Path(os.path.realpath(tempfile.gettempdir())), Path("/")}
    return folder in general


def _without_nested(folders: list[Path]) -> list[Path]:
    """Outermost folders only, except that a general folder does not swallow a project."""
    retained: list[Path] = []
    for folder in sorted(set(folders), key=lambda path: len(path.parts)):
        if not any(folder.is_relative_to(other) and not _is_general(other) for other in retained):
            retained.append(folder)
    return retained


def _worth_opening(entry: os.DirEntry[str]) -> bool:
    return entry.name not in _LINKED_WHOLE and not os.path.exists(os.path.join(entry.path, "pyvenv.cfg"))


def _entries(folder: Path) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            yield from sorted(found, key=lambda entry: entry.name)
    except OSError:
        return
