"""What a rank does to the outside, and what it asks of it, in order: files, folders, programs, connections.

Python's audit events name most of it; what raises none (`os.stat`, writers in C++) is wrapped. An event "effect" has
a kind and a path. Kinds that change something: write, append, mkdir, rmdir, remove, rmtree, rename, link, chmod,
truncate, run, connect. Kinds that do not: open (for appending, which makes the file and fails without its folder),
read, ask (does it exist, how large is it), list. "effect_end" says when a written file got its last bytes.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shlex
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

from accelify.verify.observe.context import Context
from accelify.verify.observe.counted_paths import CountedPaths
from accelify.verify.observe.native_writers import reads_source, wrap_native_writers, wrap_os
from accelify.verify.observe.opened import WatchedOpen
from accelify.verify.observe.ordering import Ordering
from accelify.verify.observe.questions import changes_nothing
from accelify.verify.observe.sites import is_library

_WRITING = os.O_WRONLY | os.O_RDWR
_UNNAMED = getattr(os, "O_TMPFILE", 0) & ~os.O_DIRECTORY
LOOKED_AT = 2_000
"""Different paths that one statement may test or read until further ones are left out."""
# Libraries that start programs and connect by themselves: compilers, fonts, the machine's name.
_INTERNAL = {
    "torch",
    "triton",
    "platform",
    "uuid",
    "ctypes",
    "multiprocessing",
    "numba",
    "matplotlib",
    "sysconfig",
}
_NOT_INTERNAL = {"torch.hub"}
_TEXT = 300
_OBSERVERS = os.path.dirname(os.path.realpath(__file__)) + os.sep
_VERIFY = os.path.dirname(_OBSERVERS.rstrip(os.sep)) + os.sep


class _Written:
    """One opened file, until it is closed."""

    def __init__(self, effects: Effects, path: str, mode: str, fields: dict[str, Any]) -> None:
        self.effects = effects
        self.path = path
        self.fields = fields
        self.number = next(effects.numbers)
        self.noted = False
        self.epoch: int | None = None
        self.kind = "append" if "a" in mode else "write"
        if "w" in mode or "x" in mode:
            self._note()
        else:
            effects.emit("open" if "a" in mode else "read", path, **fields)

    def _note(self) -> None:
        self.noted = True
        self.effects.emit(self.kind, self.path, id=self.number, **self.fields)

    def wrote(self) -> None:
        if not self.noted:
            self._note()
        if self.epoch != self.effects.ordering.epoch or self.effects.ordering.moved():
            # What came before was not yet the end.
            self.epoch = self.effects.end(self.number)

    def closed(self) -> None:
        if self.noted and self.epoch is None:
            self.epoch = self.effects.end(self.number)


class Effects:
    """Watches one process.

    Args:
        context: where events are written.
        ordering: numbers the stretches between collectives.
        ignored: folders that do not count, such as that of the run's records.
    """

    def __init__(self, context: Context, ordering: Ordering, ignored: tuple[str, ...] = ()) -> None:
        self.context = context
        self.ordering = ordering
        self.paths = CountedPaths(ignored)
        self.numbers = itertools.count()
        self.opened = WatchedOpen(self._begin, self._unwatched)
        self._here = threading.local()
        self._process = os.getpid()
        self._finished = False
        self._seen: set[tuple[Any, ...]] = set()
        self._looked: dict[Any, int] = {}
        self.wrap_imported: Callable[[str], None] = lambda _: None
        self._handlers: dict[str, Callable[..., None]] = {
            "open": self._on_open, "os.mkdir": self._on_mkdir, "os.remove": self._on_remove,
            "os.rmdir": self._on_rmdir, "os.rename": self._on_rename, "os.link": self._on_link,
            "os.symlink": self._on_link, "os.chmod": self._on_change("chmod"),
            "os.chown": self._on_change("chmod"), "os.truncate": self._on_change("truncate"),
            "os.listdir": self._on_list, "os.scandir": self._on_list,
            "subprocess.Popen": self._on_program, "os.system": self._on_system, "os.exec": self._on_exec,
            "os.posix_spawn": self._on_spawn, "os.spawn": lambda _, path, args, env: self._on_exec(path, args, env),
            "socket.connect": self._on_connect, "socket.getaddrinfo": self._on_lookup,
            "sqlite3.connect": self._on_database, "tempfile.mkstemp": self.paths.note_temporary,
            "tempfile.mkdtemp": self.paths.note_temporary, "import": self._on_import,
        }  # fmt: skip

    def install(self) -> None:
        """Watch from now on, for the life of the process."""
        self.context.emit("process", pid=os.getpid())
        wrap_os(self)
        self.wrap_imported = wrap_native_writers(self)
        self.opened.install()
        sys.addaudithook(self._on_event)

    def finish(self) -> None:
        """What comes after is done by the observers."""
        self.opened.flush()
        self._finished = True
        self.ordering.flush()

    # Events -----------------------------------------------------------------------------------------------------

    def emit(self, kind: str, path: str, **fields: Any) -> None:
        """Write an effect on a resolved path."""
        if self._finished or _is_the_runs():
            return
        epoch = self.ordering.flush()
        self.context.emit_here(
            "effect", kind=kind, path=self.context.translate(path), epoch=epoch, pid=os.getpid(),
            starter=self.context.sites.starter(), **fields,
        )  # fmt: skip

    def end(self, number: int) -> int:
        """The file of that number has got bytes, after which another collective may come."""
        epoch = self.ordering.flush()
        if not self._finished:
            self.context.emit("effect_end", id=number, epoch=epoch)
        return epoch

    def change(self, kind: str, path: Any, **fields: Any) -> None:
        """Something is changed at `path`, as the script writes it."""
        if self._is_off() or isinstance(path, int):
            return
        with self.context.pause():
            real = self.paths.resolve(path)
        if real is not None:
            self.emit(kind, real, **fields)

    def _is_making_folders(self) -> bool:
        return bool(getattr(self._here, "folders", None))

    def look(self, kind: str, path: Any) -> None:
        """A path is read or tested for. Once for a statement between two collectives."""
        if self._is_off() or isinstance(path, int) or path is None or os.getpid() != self._process:
            return
        if kind == "ask" and self._is_making_folders():
            return
        fields = {}
        with self.context.pause():
            real = self.paths.resolve(path)
            if real is None:
                return
            site = self.context.sites.here()
            key = (kind, real, site, self.ordering.epoch)
            if site is None or (key in self._seen and not self.ordering.moved()):
                return
            looked = self._looked[site] = self._looked.get(site, 0) + 1
            if looked > LOOKED_AT:
                if looked == LOOKED_AT + 1:
                    self.context.emit("effects_left_out", site=site, count=LOOKED_AT)
                return
            if kind == "ask" and changes_nothing(*site):
                fields["harmless"] = True
        self.emit(kind, real, **fields)
        self._seen.add((kind, real, site, self.ordering.epoch))

    @contextlib.contextmanager
    def covering(self, kind: str, path: Any) -> Iterator[None]:
        """A library writes or reads `path` as a whole while this is entered, in whatever steps."""
        if self._is_off() or not isinstance(path, (str, bytes, os.PathLike)):
            yield
            return
        with self.context.pause():
            real = self.paths.resolve(path)
        if real is None or kind == "read":
            if real is not None:
                self.look(kind, path)
            with self._unwatched():
                yield
            return
        number = next(self.numbers)
        self.emit(kind, real, id=number, new=self._is_new(real))
        try:
            with self._unwatched():
                yield
        finally:
            self.end(number)

    @contextlib.contextmanager
    def _unwatched(self) -> Iterator[None]:
        """Files opened in this thread are named already."""
        before = getattr(self._here, "unwatched", False)
        self._here.unwatched = True
        try:
            yield
        finally:
            self._here.unwatched = before

    @contextlib.contextmanager
    def making_folders(self, exist_ok: bool, parents: bool) -> Iterator[None]:
        """Whether a folder that exists is no error in this thread, and whether those above it are made too."""
        before = getattr(self._here, "folders", {})
        self._here.folders = {"exist_ok": exist_ok, "parents": parents or before.get("parents", False)}
        try:
            yield
        finally:
            self._here.folders = before

    def _is_off(self) -> bool:
        return self._finished or self.context.paused

    def _is_new(self, real: str) -> bool:
        with self.context.pause():
            return not os.path.lexists(real)

    def _begin(self, path: Any, mode: str) -> _Written | None:
        if self._is_off() or getattr(self._here, "unwatched", False):
            return None
        with self.context.pause():
            real = self.paths.resolve(path)
        return None if real is None else _Written(self, real, mode, {"new": self._is_new(real)})

    # Audit events -----------------------------------------------------------------------------------------------

    def _on_event(self, event: str, args: tuple[Any, ...]) -> None:
        handler = self._handlers.get(event)
        if handler is not None and not self._is_off():
            handler(*args)

    def _on_open(self, path: Any, mode: Any, flags: Any) -> None:
        if getattr(self._here, "unwatched", False) or isinstance(path, int) or not isinstance(flags, int):
            return
        if flags & _WRITING:
            if _UNNAMED and flags & _UNNAMED == _UNNAMED:
                return
            with self.context.pause():
                real = self.paths.resolve(path)
            if real is not None:
                kind = "append" if flags & os.O_APPEND else "write"
                self.emit(kind, real, new=self._is_new(real))
        elif not reads_source(sys._getframe(2)):
            self.look("read", path)

    def _on_mkdir(self, path: Any, mode: Any, dir_fd: Any = -1) -> None:
        if dir_fd not in (-1, None):
            return
        with self.context.pause():
            real = self.paths.resolve(path)
            if real is None:
                return
            new = not os.path.lexists(real) and os.path.isdir(os.path.dirname(real))
        self.emit("mkdir", real, new=new, **getattr(self._here, "folders", {}))

    def _on_remove(self, path: Any, dir_fd: Any = -1) -> None:
        self._remove("remove", path, dir_fd)

    def _on_rmdir(self, path: Any, dir_fd: Any = -1) -> None:
        self._remove("rmdir", path, dir_fd)

    def _remove(self, kind: str, path: Any, dir_fd: Any) -> None:
        if dir_fd not in (-1, None):
            return
        with self.context.pause():
            real = self.paths.resolve(path)
            there = real is not None and os.path.lexists(real)
        self.paths.forget()
        if real is not None:
            self.emit(kind if there else "ask", real)

    def _on_rename(self, source: Any, target: Any, *_: Any) -> None:
        with self.context.pause():
            old, new = self.paths.any(source), self.paths.resolve(target)
        self.paths.forget()
        if old is None:
            return
        temporary = self.paths.take_temporary(old)
        if new is None:
            if not temporary and self.paths.counts(old):
                self.emit("remove", old)
            return
        fields = {"new": self._is_new(new)}
        if temporary or not self.paths.counts(old):
            # A file that was written elsewhere takes its place: for everybody else it is written here, at once.
            self.emit("write", new, **fields)
        else:
            self.emit("rename", new, source=self.context.translate(old), **fields)

    def _on_link(self, source: Any, target: Any, *_: Any) -> None:
        self.paths.forget()
        self.change("link", target, new=True)

    def _on_change(self, kind: str) -> Callable[..., None]:
        return lambda path, *_: self.change(kind, path)

    def _on_list(self, path: Any) -> None:
        if not reads_source(sys._getframe(2)):
            self.look("list", "." if path is None else path)

    def _on_database(self, path: Any) -> None:
        if isinstance(path, (str, bytes, os.PathLike)) and os.fsdecode(path) != ":memory:":
            with self.context.pause():
                real = self.paths.resolve(path)
            if real is not None and self._is_new(real):
                self.emit("write", real, new=True)

    def _on_program(self, executable: Any, args: Any, *_: Any) -> None:
        words = args if isinstance(args, (list, tuple)) else [args]
        self._program(
            [os.fsdecode(word) if isinstance(word, (bytes, os.PathLike)) else str(word) for word in words]
        )

    def _on_system(self, command: Any) -> None:
        self._program([os.fsdecode(command)])

    def _on_exec(self, path: Any, args: Any, env: Any) -> None:
        self._program([os.fsdecode(path), *(os.fsdecode(word) for word in list(args)[1:])])

    def _on_spawn(self, path: Any, args: Any, env: Any) -> None:
        # The module subprocess has named it already.
        if os.path.basename(sys._getframe(2).f_code.co_filename) != "subprocess.py":
            self._on_exec(path, args, env)

    def _program(self, words: list[str]) -> None:
        if not _is_internal():
            translated = [self.context.translate(word) for word in words]
            text = translated[0] if len(words) == 1 else shlex.join(translated)
            self.emit("run", text[:_TEXT])

    def _on_lookup(self, host: Any, port: Any, *_: Any) -> None:
        self._here.looked_up = str(port)
        if host is not None and not _is_internal():
            self.emit("connect", f"{_text(host)}:{_text(port)}")

    def _on_connect(self, socket: Any, address: Any) -> None:
        if not isinstance(address, tuple) or len(address) < 2:
            return
        # Named when its name was looked up, which comes first and is all that there is without a network.
        if str(address[1]) != getattr(self._here, "looked_up", None) and not _is_internal():
            self.emit("connect", f"{_text(address[0])}:{address[1]}")

    def _on_import(self, module: str, *_: Any) -> None:
        self.wrap_imported(module)


def _text(word: Any) -> str:
    return word.decode(errors="replace") if isinstance(word, bytes) else str(word)


def _is_the_runs() -> bool:
    """Whether this is done by what keeps the run from harm, not by the script."""
    frame = sys._getframe(2)
    while frame is not None and is_library(file := frame.f_code.co_filename):
        # A wrapper passes the script's call on; what the sandbox does by itself has a name.
        by_sandbox = file.startswith(_VERIFY) and not file.startswith(_OBSERVERS)
        if by_sandbox and frame.f_code.co_name != "wrapped":
            return True
        frame = frame.f_back  # type: ignore[assignment]
    # Without any frame of the user's, the process itself is at the end of them all.
    return False


def _is_internal() -> bool:
    """Whether a library that is known to start programs by itself starts this one."""
    frame = sys._getframe(2)
    while frame is not None and is_library(frame.f_code.co_filename):
        name = frame.f_globals.get("__name__", "")
        if name.partition(".")[0] in _INTERNAL and name not in _NOT_INTERNAL:
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False


_installed: list[Effects] = []


def install(context: Context) -> None:
    """Watch what this process does to the outside."""
    ordering = Ordering(context)
    ordering.install()
    effects = Effects(context, ordering, (os.path.dirname(os.path.realpath(context.writer.file.name)),))
    effects.install()
    _installed.append(effects)


def finish(context: Context) -> None:
    """Write what is in the buffers, and what is known at the end only."""
    for effects in _installed:
        effects.finish()
