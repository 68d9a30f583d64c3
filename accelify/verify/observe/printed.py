"""What a run writes to stdout and stderr: each line with the statement of the user's code that wrote it.

The streams stay the objects that they are; only their `write` is watched, so that whoever holds one already is seen
too. What comes through Python arrives here: `print`, `sys.stdout.write`, `.buffer.write`, `os.write`, handlers of
logging, warnings, what a library prints for the line that called it. What C code and other processes write to the
same file is found at the end, without a place, where the output is a regular file and no worker process has printed.

A carriage return ends a line that the user's code wrote. One that a library wrote is a progress bar's: what follows is
drawn again and again as time goes by and is no line; `scalars` records what such a bar came to.

Ranks on which `print` of the runtime stays silent have evaluated its arguments all the same. These are events of the
kind "would_print"; with them the mean over all ranks can be compared.
"""

from __future__ import annotations

import contextlib
import functools
import mmap
import os
import re
import stat
import sys
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import FrameType, ModuleType
from typing import Any

import accelify
from accelify.verify.observe import clock
from accelify.verify.observe.context import Context
from accelify.verify.observe.imports import when_imported
from accelify.verify.observe.sites import Site

LONGEST = 4000
"""Characters of one line that are compared."""
_ENDS = re.compile(r"(\r*\n|\r)")
_CONTROLS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_ACCELIFY = os.path.dirname(os.path.realpath(accelify.__file__))
_ENGINES = tuple(
    os.sep + os.path.join(*parts) + os.sep
    for parts in (("torch", "distributed"), ("torch", "nn", "parallel"), ("site-packages", "accelerate"))
)


@dataclass
class _Line:
    """What is on the last line of a stream so far, and what is known of its first part."""

    parts: list[str] = field(default_factory=list)
    site: Site | None = None
    loop: bool = False
    step: int = 0
    runtime: bool = False
    by_library: bool = False
    bar: bool = False
    """A library draws a progress bar on this line."""


_FROM_C = "(Triggered internally at "
"""What torch adds to the warnings of its C++ code, which Python takes for the calling line's."""


class _Depths(threading.local):
    """How deep one thread is in calls of a kind."""

    silent = 0
    """Calls below which bytes and descriptors are only where the text goes on."""
    forwarding = 0
    """Calls of the runtime that write what the script asks for."""


class Printed:
    """Watches the streams of one process."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.streams: tuple[Any, ...] = ()
        self.lines: dict[str, _Line] = {}
        self.depths = _Depths()
        self.worker = False
        self.written = 0
        self.seen: Counter[str] = Counter()
        self.runtimes: dict[str, bool] = {}
        self.file = False
        # Shared with processes that are forked from this one: whether one of them has printed.
        self.shared = mmap.mmap(-1, 1)

    def install(self) -> None:
        """Watch from now on."""
        self.streams = (sys.stdout, sys.stderr)
        self.file = self._is_empty_file()
        streams: tuple[tuple[str, Any], ...] = (("stdout", sys.stdout), ("stderr", sys.stderr))
        for name, stream in streams:
            self.lines[name] = _Line()
            # A stream of another kind may have no attributes to set; the streams of a run are files of C's.
            with contextlib.suppress(AttributeError):
                stream.write = self._watched(stream.write, name)
                # A text layer that waits writes bytes at another time, and they would be seen twice.
                if stream.write_through:
                    stream.buffer.write = self._watched_bytes(stream.buffer.write, name)
        os.write = self._watched_descriptor(os.write)
        if hasattr(warnings, "_showwarnmsg"):
            warnings._showwarnmsg = self._watched_warning(warnings._showwarnmsg)
        when_imported("accelify.runtime.state", self._watch_runtime)
        when_imported("accelify.runtime.logging", self._watch_runtime_logging)
        when_imported("accelerate.state", self._watch_runtime)
        when_imported("accelerate.logging", self._watch_runtime_logging)
        os.register_at_fork(after_in_child=self._in_worker)

    def finish(self) -> None:
        """Write what is on an unfinished line, and what others wrote to the same file."""
        for name, line in self.lines.items():
            self._end(line, name)
        if self.file and not self.shared[0]:
            self._write_of_others()

    # Writing ----------------------------------------------------------------------------------------------------

    def _watched(self, write: Callable[[str], int], name: str) -> Callable[[str], int]:
        depths = self.depths

        def watched(text: str) -> int:
            depths.silent += 1
            try:
                count = write(text)
            finally:
                depths.silent -= 1
            if text and not depths.silent and not self.context.paused:
                self._note(name, text, sys._getframe(1))
            return count

        return watched

    def _watched_bytes(self, write: Callable[[Any], int], name: str) -> Callable[[Any], int]:
        depths = self.depths

        def watched(data: Any) -> int:
            if depths.silent or self.context.paused:
                return write(data)
            count = write(data)
            self._note(name, bytes(data).decode(errors="replace"), sys._getframe(1))
            return count

        return watched

    def _watched_descriptor(self, write: Callable[[int, Any], int]) -> Callable[[int, Any], int]:
        @functools.wraps(write)
        def watched(fd: int, data: Any) -> int:
            count = write(fd, data)
            if fd in (1, 2) and not self.depths.silent and not self.context.paused:
                text = bytes(data[:count]).decode(errors="replace")
                self._note("stdout" if fd == 1 else "stderr", text, sys._getframe(1))
            return count

        return watched

    def _watched_warning(self, show: Callable[[Any], None]) -> Callable[[Any], None]:
        """A warning is one line without its place, which is another one in another file."""

        def watched(message: Any) -> None:
            standard = getattr(warnings, "_showwarning_orig", None)
            if warnings.showwarning is not standard or self.context.paused:
                return show(message)
            before = self._size()
            self.depths.silent += 1
            try:
                show(message)
            finally:
                self.depths.silent -= 1
            self.written += self._size() - before
            frame = sys._getframe(1)
            if not self.context.sites.is_users(frame.f_code.co_filename) or _FROM_C in str(message.message):
                # A library warns of a call in the text of the script, which the other text may not have; and each
                # process warns for itself.
                return None
            line = _Line()
            self._begin(line, frame)
            line.parts.append(f"{message.category.__name__}: {message.message}")
            self._end(line, "stderr")
            return None

        return watched

    def _note(self, name: str, text: str, frame: FrameType) -> None:
        """Take in what was written to a stream by `frame`."""
        line = self.lines[name]
        if self.file and not self.worker:
            self.written += len(text) if text.isascii() else len(text.encode(errors="replace"))
        if "\n" not in text and "\r" not in text:
            if line.parts and not line.bar:
                line.parts.append(text)
            else:
                self._add(line, text, frame)
            return
        library = not self.context.sites.is_users(frame.f_code.co_filename)
        pieces = _ENDS.split(text)
        for position in range(0, len(pieces) - 1, 2):
            piece, end = pieces[position], pieces[position + 1]
            if piece:
                self._add(line, piece, frame)
            if end == "\r" and library:
                if not line.bar:
                    self._end(line, name)
                # With nothing after it the line is empty again: the bar has made way for other text.
                line.bar = bool("".join(pieces[position + 2 :]))
                continue
            if not line.parts and not line.bar and end != "\r":
                self._begin(line, frame)
                line.parts.append("")
            self._end(line, name)
            line.bar = False
        if pieces[-1]:
            self._add(line, pieces[-1], frame)

    def _add(self, line: _Line, text: str, frame: FrameType) -> None:
        if line.bar:
            if not self.context.sites.is_users(frame.f_code.co_filename):
                return
            line.bar = False
        if not line.parts:
            self._begin(line, frame)
        line.parts.append(text)

    def _begin(self, line: _Line, frame: FrameType) -> None:
        with self.context.pause():
            line.site, line.runtime = self._origin(frame)
            line.loop = self.context.sites.in_batch_loop()
        line.step = self.context.step
        users = self.context.sites.is_users(frame.f_code.co_filename)
        line.by_library = not users and not self.depths.forwarding

    def _end(self, line: _Line, name: str) -> None:
        if not line.parts:
            return
        text = "".join(line.parts)
        line.parts.clear()
        if "\x1b" in text:
            text = _CONTROLS.sub("", text)
        if line.by_library and not text.strip():
            return
        if self.file:
            self.seen[text.rstrip()] += 1
        if self.worker:
            self.shared[0] = 1
        self._emit("line", text, line.site, line.loop, line.step, stream=name, runtime=line.runtime)

    def _emit(self, kind: str, text: str, site: Site | None, loop: bool, step: int, **more: Any) -> None:
        text = text if len(text) <= LONGEST else f"{text[:LONGEST]} ... ({len(text)} characters)"
        if self.worker:
            more["worker"] = True
        if times := clock.spans(text):
            more["times"] = times
        self.context.emit(kind, text=text, site=site, step=step, loop=loop, **more)

    def _origin(self, frame: FrameType | None) -> tuple[Site | None, bool]:
        """The user's statement that wrote, and whether it was the runtime that spoke there."""
        sites, runtime = self.context.sites, False
        while frame is not None:
            file = frame.f_code.co_filename
            if sites.is_users(file):
                if not self._is_stand_in(frame):
                    return sites.of(frame), runtime and not self.depths.forwarding
            elif not runtime:
                runtime = self._is_runtime(file)
            frame = frame.f_back
        return None, runtime

    def _is_runtime(self, file: str) -> bool:
        known = self.runtimes.get(file)
        if known is None:
            known = file.startswith(os.path.join(_ACCELIFY, "runtime") + os.sep)
            known = known or any(engine in file for engine in _ENGINES)
            self.runtimes[file] = known
        return known

    def _is_stand_in(self, frame: FrameType) -> bool:
        """Whether a method runs of an object that the script has put in the place of a stream."""
        if sys.stdout is self.streams[0] and sys.stderr is self.streams[1]:
            return False
        code = frame.f_code
        if not code.co_argcount:
            return False
        first = frame.f_locals.get(code.co_varnames[0])
        return first is not None and (first is sys.stdout or first is sys.stderr)

    # The runtime's ways to print -------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _forwarded(self) -> Iterator[None]:
        """While entered, what the runtime writes is the script's."""
        self.depths.forwarding += 1
        try:
            yield
        finally:
            self.depths.forwarding -= 1

    def _would_print(self, text: str) -> None:
        with self.context.pause():
            site, loop = self.context.sites.here(), self.context.sites.in_batch_loop()
        for line in text.removesuffix("\n").split("\n"):
            self._emit("would_print", line, site, loop, self.context.step)

    def _watch_runtime(self, module: ModuleType) -> None:
        """Of the module with PartialState, the runtime's or Accelerate's."""
        state = module.PartialState
        function = state.print

        @functools.wraps(function)
        def watched(process: Any, *args: Any, **kwargs: Any) -> Any:
            prints = process.is_local_main_process
            if not prints and kwargs.get("file") in (None, *self.streams, sys.stdout, sys.stderr):
                # Where an argument has no text, the ranks that print find it out.
                with contextlib.suppress(Exception):
                    separator, end = kwargs.get("sep"), kwargs.get("end")
                    text = (" " if separator is None else separator).join(map(str, args))
                    self._would_print(text + ("\n" if end is None else end))
            with self._forwarded():
                return function(process, *args, **kwargs)

        state.print = watched

    def _watch_runtime_logging(self, module: ModuleType) -> None:
        """Of the module with MultiProcessAdapter."""
        adapter = module.MultiProcessAdapter
        function = adapter.log
        # Both count frames to find the caller, Accelerate's starting at its caller.
        level_of_caller = 2 if module.__name__.startswith("accelerate.") else 1

        @functools.wraps(function)
        def watched(logger: Any, level: int, msg: Any, *args: Any, **kwargs: Any) -> Any:
            if self.context.rank and kwargs.get("main_process_only", True) and not kwargs.get("in_order"):
                with contextlib.suppress(Exception):
                    if logger.isEnabledFor(level):
                        self._would_print(str(msg) % args if args else str(msg))
            # This frame is between the two.
            kwargs["stacklevel"] = kwargs.get("stacklevel", level_of_caller) + 1
            with self._forwarded():
                return function(logger, level, msg, *args, **kwargs)

        adapter.log = watched

    # The file that the output goes to ---------------------------------------------------------------------------

    def _in_worker(self) -> None:
        self.worker = True
        for line in self.lines.values():
            line.parts.clear()

    def _is_empty_file(self) -> bool:
        try:
            found = os.fstat(1)
        except OSError:
            return False
        return stat.S_ISREG(found.st_mode) and found.st_size == 0

    def _size(self) -> int:
        if not self.file:
            return 0
        with contextlib.suppress(Exception):
            sys.stderr.flush()
        return os.fstat(1).st_size

    def _write_of_others(self) -> None:
        """Lines of the output whose writer is not known: C code, or a child process."""
        with contextlib.suppress(Exception):
            sys.stdout.flush()
        if self._size() <= self.written:
            return
        with contextlib.suppress(OSError), self.context.pause():
            with open("/proc/self/fd/1", "rb") as file:
                text = file.read(1 << 20).decode(errors="replace")
            for line in text.split("\n"):
                shown = _CONTROLS.sub("", line.rsplit("\r", 1)[-1]).rstrip()
                if not shown or self.seen[shown] > 0:
                    self.seen[shown] -= 1
                elif "\r" not in line:
                    self._emit("line", shown, None, False, self.context.step, stream="other", runtime=False)


_watching: list[Printed] = []


def install(context: Context) -> None:
    """Watch the streams from now on."""
    clock.install(context)
    printed = Printed(context)
    printed.install()
    _watching.append(printed)


def finish(context: Context) -> None:
    """Write what is known at the end only."""
    for printed in _watching:
        if printed.context is context:
            printed.finish()
