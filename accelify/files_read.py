"""What was looked at on the disk while something was worked out, so that a cache knows when that is out of date.

Everything that `check` finds goes by these functions when it asks for a file or a folder. What they saw is noted for
those who listen (`looking`), whoever asked first, so that memories of a run do not hide it.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

# What is asked (`file`, `kind`, `names` or `commands`, with a limit but for the second), and of which path.
Question = tuple[str, str]
SCRIPTS, COMMANDS = "names", "commands"
# Which files are listed.
_ENDINGS = {SCRIPTS: (".py", ".ipynb"), COMMANDS: (".md", ".rst", ".sh", ".yaml", ".yml")}
_NOTHING = ""


class Looks:
    """The questions that were asked of the disk, each once."""

    def __init__(self) -> None:
        self.questions: dict[Question, None] = {}
        self._has: set[Looks] = set()

    def add(self, other: Looks) -> None:
        """Take in what was asked elsewhere."""
        if other not in self._has:
            self._has.add(other)
            self.questions.update(other.questions)

    def marks(self) -> dict[Question, str] | None:
        """The answers by question; None where one changed in the meantime, or is not known to this process."""
        if _unsteady.intersection(self.questions) or not _marks.keys() >= self.questions.keys():
            return None
        return {one: _marks[one] for one in self.questions}


_listening: list[Looks] = []
_marks: dict[Question, str] = {}
_unsteady: set[Question] = set()


@contextmanager
def looking() -> Iterator[Looks]:
    """Note what is looked at meanwhile, for those outside, too."""
    looks = Looks()
    _listening.append(looks)
    try:
        yield looks
    finally:
        _listening.remove(looks)
        note(looks)


def note(looks: Looks) -> None:
    """What was looked at for something that is remembered counts as looked at again."""
    for one in _listening:
        one.add(looks)


def listener() -> Looks | None:
    """Who listens: what was worked out for somebody else has to be looked at, or noted, again."""
    return _listening[-1] if _listening else None


def forget() -> None:
    """Begin a new run: files may have changed since."""
    _marks.clear()
    _unsteady.clear()


def read(path: Path, largest: int | None = None) -> bytes | None:
    """The bytes of a file; None for one that is larger than wanted. Raises OSError where it cannot be read."""
    sort = _limited("file", largest)
    try:
        with open(path, "rb", buffering=0) as file:
            data = file.readall() if largest is None or os.fstat(file.fileno()).st_size <= largest else None
    except OSError:
        _seen(sort, str(path), _NOTHING)
        raise
    if _listening:
        _seen(sort, str(path), _content_mark(data))
    return data


def is_file(path: Path | str) -> bool:
    """Whether there is a file."""
    return _kind(str(path)) == "file"


def is_folder(path: Path | str) -> bool:
    """Whether there is a folder."""
    return _kind(str(path)) == "folder"


def exists(path: Path | str) -> bool:
    """Whether there is something."""
    return _kind(str(path)) != _NOTHING


def names_in(folder: Path | str, most: int | None = None, kind: str = SCRIPTS) -> tuple[list[str], list[str]]:
    """The folders in a folder, and the files of a kind, sorted; links count as files.

    Args:
        folder: where to look.
        most: how many entries are looked at; all where None.
        kind: Python files and notebooks (SCRIPTS), or what says how they are started (COMMANDS).

    Raises:
        OSError: it cannot be listed.
    """
    place, sort = str(folder), _limited(kind, most)
    try:
        folders, files = _listed(place, most, kind)
    except OSError:
        _seen(sort, place, _NOTHING)
        raise
    if _listening:
        _seen(sort, place, _names_mark(folders, files))
    return folders, files


def mark_of(data: bytes) -> str:
    """What content is recognised by."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def is_as_before(marks: Mapping[Question, str], known: dict[Question, str]) -> bool:
    """Whether the disk answers as it did.

    Args:
        marks: the answers of then.
        known: takes and gives answers of now, for several questions of one run.
    """
    for question, mark in marks.items():
        now = known.get(question)
        if now is None:
            now = known[question] = _answer(*question)
        if now != mark:
            return False
    return True


def _answer(sort: str, place: str) -> str:
    word, _, number = sort.partition(" ")
    limit = int(number) if number else None
    try:
        if word == "kind":
            return _look(place)
        if word in _ENDINGS:
            return _names_mark(*_listed(place, limit, word))
        return _content_mark(
            Path(place).read_bytes() if limit is None or os.stat(place).st_size <= limit else None
        )
    except OSError:
        return _NOTHING


def _limited(word: str, limit: int | None) -> str:
    return word if limit is None else f"{word} {limit}"


def _content_mark(data: bytes | None) -> str:
    return "large" if data is None else mark_of(data)


def _seen(sort: str, place: str, mark: str) -> None:
    question = (sort, place)
    if _marks.setdefault(question, mark) != mark:
        _unsteady.add(question)
    for one in _listening:
        one.questions[question] = None


def _kind(place: str) -> str:
    kind = _look(place)
    if _listening:
        _seen("kind", place, kind)
    return kind


def _look(place: str) -> str:
    try:
        mode = os.stat(place).st_mode
    except (OSError, ValueError):
        return _NOTHING
    return "folder" if stat.S_ISDIR(mode) else "file" if stat.S_ISREG(mode) else "other"


def _listed(place: str, most: int | None, kind: str) -> tuple[list[str], list[str]]:
    folders: list[str] = []
    files: list[str] = []
    with os.scandir(place) as entries:  # folders of pictures may hold millions
        for number, entry in enumerate(entries):
            if most is not None and number >= most:
                break
            if entry.is_dir(follow_symlinks=False):
                folders.append(entry.name)
            elif entry.name.endswith(_ENDINGS[kind]) and (
                entry.is_symlink() or entry.is_file(follow_symlinks=False)
            ):
                files.append(entry.name)
    return sorted(folders), sorted(files)


def _names_mark(folders: Iterable[str], files: Iterable[str]) -> str:
    return mark_of("\0".join([*folders, "/", *files]).encode("utf-8", "surrogateescape"))
