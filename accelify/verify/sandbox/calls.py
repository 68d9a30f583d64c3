"""Python's file functions, redirected into the run's tree.

Each function of `os`, `open` and its kind is replaced by one that asks the tree first. What reaches the interpreter
another way (an extension that opens by Python's C interface) is seen by an audit hook, which refuses
to write elsewhere.
"""

from __future__ import annotations

import _io
import builtins
import functools
import inspect
import io
import os
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

from accelify.verify.sandbox.tree import Tree

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
# Names of `os`; the paths are the first parameters. A folder is made the run's before a
# script removes it, or goes there, so that what other programs write below it stays the run's as well.
_READ = "stat access listdir statvfs getxattr listxattr pathconf".split()
_READ_LINK = "lstat readlink".split()
_CONTENT = "truncate chmod chown utime setxattr removexattr rmdir chdir".split()
_NAME = "mkdir remove unlink mkfifo mknod lchown lchmod".split()
# Audit events that change files, with the positions of their paths. The name alone counts for the second group.
_CONTENT_EVENTS = {"os.truncate": (0,), "os.chmod": (0,), "os.chown": (0,), "os.utime": (0,), "os.setxattr": (0,),
                   "os.removexattr": (0,)}  # fmt: skip
_NAME_EVENTS = {"os.mkdir": (0,), "os.remove": (0,), "os.rmdir": (0,), "os.rename": (0, 1), "os.link": (1,),
                "os.symlink": (1,)}  # fmt: skip


class SandboxRefusal(PermissionError):  # noqa: N818 (it is a permission error, as the script would have from the system)
    """Something that could write outside the sandbox."""


def refusal(what: str) -> SandboxRefusal:
    """The sentence for something that is not let through."""
    return SandboxRefusal(
        f"{what} could write outside the trial run's sandbox, and this machine gives verify no user namespaces: "
        "allow them, or leave this out of the trial run"
    )


class Calls:
    """Leads the calls of this process; `install` holds for its life."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self._inner = threading.local()

    def install(self) -> None:
        """Replace the functions, and watch what goes past them."""
        opened = self._opened(io.open)
        builtins.open = io.open = _io.open = opened
        os.open = self._os_open(os.open)
        for names, way in ((_READ, self._read), (_READ_LINK, self._read_link), (_CONTENT, self._content),
                           (_NAME, self._name)):  # fmt: skip
            for name in names:
                if hasattr(os, name):
                    setattr(os, name, self._one(getattr(os, name), way))
        for name in ("rename", "replace"):
            setattr(os, name, self._two(getattr(os, name), self._moved))
        os.link = self._two(os.link, self._linked)
        os.symlink = self._two(os.symlink, self._symlinked)
        os.scandir = self._scandir(os.scandir)
        # It removes by descriptors, to which no call leads: the folder has to be the run's before it starts.
        shutil.rmtree = self._rmtree(shutil.rmtree)  # type: ignore[assignment]
        # The process's entry to them, taken over by the import machinery and `tempfile`, stays.
        sys.addaudithook(self._on_event)

    def private(self, path: Any, content: bool = True) -> Any:
        """Where to write `path`, which is a path or anything else that a function takes in its place."""
        return self._led(path, lambda name: self.tree.private(name, content))

    def readable(self, path: Any) -> Any:
        """Where to read `path`."""
        return self._led(path, self.tree.physical)

    def lead_files(self, kind: type[io.FileIO]) -> None:
        """Lead away what a class of raw files opens by itself."""
        start = kind.__init__

        def opening(raw: io.FileIO, file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> None:
            writes = any(letter in mode for letter in "wax+")
            start(raw, self.private(file) if writes else self.readable(file), mode, *args, **kwargs)

        kind.__init__ = opening  # type: ignore[method-assign, assignment]

    def _led(self, path: Any, lead: Callable[[str], str]) -> Any:
        if isinstance(path, int) or getattr(self._inner, "busy", False):
            return path
        try:
            name = os.fspath(path)
        except TypeError:
            return path
        text = os.fsdecode(name)
        if not text or "\0" in text:
            return path
        self._inner.busy = True
        try:
            led = lead(text)
        finally:
            self._inner.busy = False
        return os.fsencode(led) if isinstance(name, bytes) else led

    def _read(self, path: Any, follow: bool) -> Any:
        return self._led(path, lambda name: self.tree.physical(name, follow))

    def _read_link(self, path: Any, follow: bool) -> Any:
        return self._led(path, lambda name: self.tree.physical(name, False))

    def _content(self, path: Any, follow: bool) -> Any:
        return self._led(path, lambda name: self.tree.private(name, True, follow))

    def _name(self, path: Any, follow: bool) -> Any:
        return self._led(path, lambda name: self.tree.private(name, False, False))

    def _one(self, function: Callable[..., Any], way: Callable[[Any, bool], Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            rest = list(args[1:])
            name = "path" if "path" in kwargs else "fd" if "fd" in kwargs else ""
            path = args[0] if args else kwargs.pop(name) if name else "."
            if not args and not name:
                return (
                    function(way(".", True), **kwargs)
                    if function.__name__ == "listdir"
                    else function(**kwargs)
                )
            path = self._from_folder(path, kwargs, "dir_fd")
            return function(way(path, kwargs.get("follow_symlinks", True)), *rest, **kwargs)

        return wrapped

    def _two(
        self, function: Callable[..., Any], way: Callable[[Any, Any], tuple[Any, Any]]
    ) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            words = [*args, *(kwargs.pop(name) for name in ("src", "dst")[len(args) :] if name in kwargs)]
            if len(words) < 2:
                return function(*args, **kwargs)
            src = self._from_folder(words[0], kwargs, "src_dir_fd")
            dst = self._from_folder(words[1], kwargs, "dst_dir_fd")
            if function.__name__ == "symlink":
                dst = self._from_folder(dst, kwargs, "dir_fd")
            return function(*way(src, dst), *words[2:], **kwargs)

        return wrapped

    def _moved(self, src: Any, dst: Any) -> tuple[Any, Any]:
        # The link that represents the file moves, and still represents it.
        return self._name(src, False), self._name(dst, False)

    def _linked(self, src: Any, dst: Any) -> tuple[Any, Any]:
        return self._content(src, False), self._name(dst, False)

    def _symlinked(self, src: Any, dst: Any) -> tuple[Any, Any]:
        return src, self._name(dst, False)

    def _from_folder(self, path: Any, kwargs: dict[str, Any], key: str) -> Any:
        """A path that was relative to an open folder, as one that is absolute."""
        folder = kwargs.get(key)
        if folder is None or isinstance(path, int):
            return path
        kwargs.pop(key)
        name = os.fsdecode(path)
        return name if os.path.isabs(name) else os.path.join(f"{self._folder_of(folder)}", name)

    def _folder_of(self, descriptor: int) -> str:
        self._inner.busy = True
        try:
            return _file_of(descriptor)
        finally:
            self._inner.busy = False

    def _opened(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapped(file: Any, mode: Any = "r", *args: Any, **kwargs: Any) -> Any:
            opener = kwargs.get("opener") or (args[5] if len(args) > 5 else None)
            if not isinstance(file, int) and isinstance(mode, str):
                # With an opener it is for show, but the hook looks at it; the opener's call is redirected too.
                writes = opener is not None or any(letter in mode for letter in "wax+")
                file = self.private(file) if writes else self._read(file, True)
            return function(file, mode, *args, **kwargs)

        return wrapped

    def _os_open(self, function: Callable[..., int]) -> Callable[..., int]:
        @functools.wraps(function)
        def wrapped(path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
            path = self._from_folder(path, {"dir_fd": dir_fd}, "dir_fd")
            follow = not flags & os.O_NOFOLLOW
            if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC):
                return function(self._content(path, follow), flags, mode)
            return function(self._read(path, follow), flags, mode)

        return wrapped

    def _scandir(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapped(path: Any = ".") -> Any:
            place = self._read(path, True)
            if isinstance(place, (int, bytes)) or not str(place).startswith(self.tree.root):
                return function(place) if isinstance(path, int) else _Named(function(place), path, {})
            originals: dict[str, Any] = {}
            try:
                with function(self.tree.virtual(place) or place) as found:
                    originals = {entry.name: entry for entry in found}
            except OSError:
                pass
            return _Named(function(place), path, originals, self.tree)

        return wrapped

    def _rmtree(self, function: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(function)
        def wrapped(path: Any, *args: Any, **kwargs: Any) -> None:
            function(self._content(path, False) if not self._is_link(path) else path, *args, **kwargs)

        return wrapped

    def _is_link(self, path: Any) -> bool:
        return not isinstance(path, int) and os.path.islink(path)

    def _on_event(self, event: str, args: tuple[Any, ...]) -> None:
        if getattr(self._inner, "busy", False):
            return
        if event == "open":
            path, _, flags = args
            if isinstance(flags, int) and flags & _WRITING:
                self._check(path, True, "opening")
        elif event in _CONTENT_EVENTS:
            for position in _CONTENT_EVENTS[event]:
                self._check(args[position], True, event)
        elif event in _NAME_EVENTS:
            for position in _NAME_EVENTS[event]:
                self._check(args[position], False, event)
        elif event == "sqlite3.connect":
            self._check_database(args[0])
        elif event in ("os.kill", "os.killpg") and not _is_own(event, args[0]):
            raise refusal(f"{event}({args[0]}, {args[1]})")

    def _check(self, path: Any, content: bool, what: str) -> None:
        self._inner.busy = True
        try:
            name = _file_of(path) if isinstance(path, int) else os.fsdecode(path)
        except (TypeError, OSError):
            return
        finally:
            self._inner.busy = False
        self._inner.busy = True
        try:
            place = name if content else os.path.join(os.path.dirname(name) or ".", "")
            allowed = self.tree.may_write(place)
        finally:
            self._inner.busy = False
        if not allowed:
            raise refusal(f"{what} {name}")

    def _check_database(self, name: Any) -> None:
        # Led away already where it is a path; a URI may ask for reading only.
        text = os.fsdecode(name) if isinstance(name, (str, bytes)) else ""
        if (
            text
            and text != ":memory:"
            and not ("mode=ro" in text or "immutable=1" in text or "mode=memory" in text)
        ):
            self._check(text.removeprefix("file:").partition("?")[0], True, "sqlite3.connect")


class _Named:
    """The entries of a folder as the script named it: those that represent real files look like them."""

    def __init__(self, found: Any, folder: Any, originals: dict[str, Any], tree: Tree | None = None) -> None:
        self._found = found
        self._folder = os.fspath(folder)
        self._originals = originals
        self._tree = tree

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        entry = next(self._found)
        original = self._originals.get(os.fsdecode(entry.name))
        if original is not None and self._tree is not None and self._tree.is_ours(entry.path):
            return _Entry(original, self._folder)
        return _Entry(entry, self._folder)

    def __enter__(self) -> _Named:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._found.close()


class _Entry:
    """An `os.DirEntry` under the name of the folder that was asked for."""

    def __init__(self, entry: Any, folder: Any) -> None:
        self._entry = entry
        self.name = entry.name
        self.path = os.path.join(folder, entry.name)

    def __fspath__(self) -> Any:
        return self.path

    def __getattr__(self, name: str) -> Any:
        return getattr(self._entry, name)

    def __repr__(self) -> str:
        return repr(self._entry)


def _file_of(descriptor: int) -> str:
    """The path of an open file."""
    if sys.platform.startswith("linux"):
        return os.readlink(f"/proc/self/fd/{descriptor}")
    import fcntl

    f_getpath = 50
    return os.fsdecode(fcntl.fcntl(descriptor, f_getpath, bytes(1024)).rstrip(b"\0"))


def _is_own(event: str, pid: Any) -> bool:
    if pid == 0 and event == "os.kill":
        return True
    try:
        return int(pid) > 0 and os.getsid(int(pid)) == os.getsid(0)
    except OSError:
        # No such process: the call says so.
        return True


def described(function: str, arguments: tuple[Any, ...]) -> str:
    """A call as it might be written in the script, cut to its beginning."""
    text = ", ".join(repr(argument) for argument in arguments)
    return f"{function}({text[:60] + '...' if len(text) > 60 else text})"


def bound(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> inspect.BoundArguments:
    """The arguments of a call by the names of their parameters."""
    return inspect.signature(function).bind(*args, **kwargs)
