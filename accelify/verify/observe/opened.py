"""Files that the script opens for writing: whether a byte was really written, and when the last one was.

`open` in a writing mode returns the objects that it always returns; only the raw file at the bottom is of a class that
says when it is first written to and when it is closed.
"""

from __future__ import annotations

import builtins
import functools
import io
import weakref
from collections.abc import Callable
from typing import Any, Protocol


class Session(Protocol):
    """An observer of what becomes of one opened file."""

    def wrote(self) -> None:
        """Bytes have been written to the system."""

    def closed(self) -> None:
        """The file is closed."""


class WatchedFile(io.FileIO):
    """A raw file that speaks to its session."""

    session: Session | None = None

    def write(self, data: Any, /) -> int:
        count = super().write(data)
        if self.session is not None and count:
            self.session.wrote()
        return count

    def truncate(self, size: int | None = None, /) -> int:
        before = self.session and io.FileIO.seek(self, 0, io.SEEK_CUR)
        result = super().truncate(size)
        if self.session is not None and before is not None:
            self.session.wrote()
        return result

    def close(self) -> None:
        was_open = not self.closed
        try:
            super().close()
        finally:
            session, self.session = self.session, None
            if was_open and session is not None:
                session.closed()


class WatchedOpen:
    """Replaces `open`.

    Args:
        begin: called with the path and the mode before such a file is opened; returns its session, None for a path
            of no interest.
        opening: context in which the raw file is opened.
    """

    def __init__(self, begin: Callable[[Any, str], Session | None], opening: Callable[[], Any]) -> None:
        self.begin = begin
        self.opening = opening
        self._original = builtins.open
        self._files: weakref.WeakSet[Any] = weakref.WeakSet()

    def install(self) -> None:
        """From now on, `open` and `io.open`."""
        original = self._original

        @functools.wraps(original)
        def open(
            file: Any, mode: Any = "r", buffering: Any = -1, encoding: Any = None, errors: Any = None,
            newline: Any = None, closefd: Any = True, opener: Any = None,
        ) -> Any:  # fmt: skip
            if not _is_plain(file, mode, buffering, encoding, errors, newline):
                return original(file, mode, buffering, encoding, errors, newline, closefd, opener)
            session = self.begin(file, mode)
            if session is None:
                return original(file, mode, buffering, encoding, errors, newline, closefd, opener)
            with self.opening():
                raw = WatchedFile(file, mode.replace("b", "").replace("t", ""), closefd, opener)
            raw.session = session
            return self._dressed(raw, mode, buffering, encoding, errors, newline)

        open.__module__ = "io"
        builtins.open = open
        io.open = open

    def flush(self) -> None:
        """Write what is still in the buffers of open files, as their end would."""
        for file in list(self._files):
            try:
                if not file.closed:
                    file.flush()
            except (OSError, ValueError):
                continue

    def _dressed(
        self, raw: WatchedFile, mode: str, buffering: int, encoding: Any, errors: Any, newline: Any
    ) -> Any:
        """What `open` puts around a raw file; as in its C code."""
        try:
            lines = buffering == 1 or (buffering < 0 and raw.isatty())
            if buffering == 0:
                return raw
            size = buffering if buffering > 1 else int(getattr(raw, "_blksize", 0)) or io.DEFAULT_BUFFER_SIZE
            buffer: Any = io.BufferedRandom(raw, size) if "+" in mode else io.BufferedWriter(raw, size)
            if "b" in mode:
                self._files.add(buffer)
                return buffer
            text = io.TextIOWrapper(buffer, encoding, errors, newline, lines)
            text.mode = mode  # type: ignore[misc]
            self._files.add(text)
            return text
        except BaseException:
            raw.close()
            raise


def is_writing(mode: str) -> bool:
    """Whether a mode of `open` allows to write."""
    return any(letter in mode for letter in "wax+")


def _is_plain(file: Any, mode: Any, buffering: Any, encoding: Any, errors: Any, newline: Any) -> bool:
    """Whether the call opens a path for writing and has nothing that `open` itself would refuse or warn of."""
    if not isinstance(mode, str) or not is_writing(mode) or isinstance(file, int):
        return False
    if (
        set(mode) - set("rwaxbt+")
        or len(set(mode)) != len(mode)
        or sum(letter in mode for letter in "rwax") != 1
    ):
        return False
    if not isinstance(buffering, int) or (
        not isinstance(file, (str, bytes)) and not hasattr(file, "__fspath__")
    ):
        return False
    if "b" in mode:
        return "t" not in mode and buffering != 1 and encoding is None and errors is None and newline is None
    return buffering != 0 and newline in (None, "", "\n", "\r", "\r\n")
