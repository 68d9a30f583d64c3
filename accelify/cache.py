"""What was worked out before, as long as all that was looked at for it is on the disk as it was.

A file for each answer, which begins with a checksum: it is written beside its place and put there in one step, so runs
may share a folder, end at any time, or find anything in it. Nothing of it is needed: what cannot be read is worked out
again, and what cannot be written is not kept. Each version of the tool, of Python and of each file of the tool has a
folder for itself.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import accelify
from accelify.files_read import Looks, Question, is_as_before, mark_of

FOLDER = ".accelify_cache"
_OF_A_VERSION = "check-"
# Seconds after which the folders of other versions go.
_MONTH = 30 * 24 * 3600


class Cache:
    """The answers in a folder.

    Args:
        folder: where they are; it is made when there is something to write.
    """

    def __init__(self, folder: Path) -> None:
        self._top = folder
        self._folder = folder / f"{_OF_A_VERSION}{_version()}"
        self._known: dict[Question, str] = {}
        self._writes = True

    def get(self, key: object) -> Any:
        """What was put there for a key, None where there is nothing or where files are not as they were."""
        try:
            mark, _, data = self._file(key).read_bytes().partition(b"\n")
            if mark.decode("ascii", "replace") != mark_of(data):
                return None
            found = json.loads(data)
            # Two keys of one mark are as good as impossible, and this costs nothing.
            if found["key"] != _text(key):
                return None
            marks = {
                (sort, place): answer
                for sort, places in found["looks"].items()
                for place, answer in places.items()
            }
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return None
        return found["answer"] if is_as_before(marks, self._known) else None

    def put(self, key: object, looks: Looks, answer: Any) -> None:
        """Keep an answer, of what JSON can hold, with what was looked at for it."""
        marks = looks.marks()
        if marks is None or not self._writes:
            return
        by_sort: dict[str, dict[str, str]] = {}
        for (sort, place), mark in marks.items():
            by_sort.setdefault(sort, {})[place] = mark
        try:
            data = json.dumps({"key": _text(key), "looks": by_sort, "answer": answer}).encode()
            self._write(self._file(key), mark_of(data).encode() + b"\n" + data)
        except (OSError, ValueError):
            self._writes = False

    def _write(self, file: Path, data: bytes) -> None:
        if not self._folder.is_dir():
            self._begin()
        import tempfile

        handle, name = tempfile.mkstemp(prefix="new-", dir=self._folder)
        try:
            with os.fdopen(handle, "wb") as opened:
                opened.write(data)
            os.replace(name, file)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(name)
            raise

    def _begin(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        ignoring = self._top / ".gitignore"
        if not ignoring.exists():
            ignoring.write_text("# Made by accelify check.\n*\n", encoding="utf-8")
        for old in self._old():
            for file in old.iterdir():
                file.unlink()
            old.rmdir()

    def _old(self) -> Iterator[Path]:
        """The folders of other versions that nobody has used for long."""
        for one in self._top.glob(f"{_OF_A_VERSION}*"):
            if one != self._folder and one.is_dir() and time.time() - one.stat().st_mtime > _MONTH:
                yield one

    def _file(self, key: object) -> Path:
        return self._folder / f"{mark_of(_text(key).encode())}.json"


def cache_folder() -> Path:
    """Where answers are: in the project around the working folder."""
    here = Path.cwd()
    return next((one for one in (here, *here.parents) if (one / "pyproject.toml").exists()), here) / FOLDER


def _text(key: object) -> str:
    return json.dumps(key, default=str, sort_keys=True)


def _version() -> str:
    """What the answers of two installations differ by: the version, Python, and the files of the tool."""
    found = hashlib.blake2b(f"{accelify.__version__} {sys.version_info}".encode(), digest_size=8)
    folders = [str(Path(accelify.__file__).parent)]
    for folder in folders:  # which grows
        with os.scandir(folder) as entries:
            inside = sorted(entries, key=lambda entry: entry.name)
        for entry in inside:
            if entry.name.endswith((".py", ".models")):
                about = entry.stat()
                found.update(f"{entry.path} {about.st_size} {about.st_mtime_ns}\n".encode())
            elif entry.is_dir() and entry.name != "__pycache__":
                folders.append(entry.path)
    return found.hexdigest()
