"""Inside a run: whatever the script writes to in its mirror is made private first, and writes beside it are refused.

Works on Python's audit events, so it sees every file opened, made, renamed or removed by Python code. Writers in C++ or
Rust that open a path themselves (`torch.save` and its kind) are wrapped.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import shutil
import sys
import threading
from collections.abc import Callable
from typing import Any

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
# Events that change what a path names, and those that only add or take away its last part. Positions of the paths.
_CONTENT = {"os.truncate": (0,), "os.chmod": (0,), "os.chown": (0,), "os.utime": (0,), "os.setxattr": (0,),
            "os.removexattr": (0,), "sqlite3.connect": (0,), "shutil.rmtree": (0,)}  # fmt: skip
_NAME = {"os.mkdir": (0,), "os.remove": (0,), "os.rmdir": (0,), "os.rename": (0, 1), "os.link": (0, 1),
         "os.symlink": (1,)}  # fmt: skip


class WriteBesideScriptError(PermissionError):
    """The script writes to an absolute path of its own project."""


class Guard:
    """Keeps the originals of one mirror untouched.

    Args:
        tree: the mirror's root.
        protected: original folders where nothing may be written.
        exempt: folders inside those where writing is none of our business (the interpreter's own).
    """

    def __init__(self, tree: str, protected: list[str], exempt: tuple[str, ...] = ()) -> None:
        self.tree = os.path.realpath(tree)
        self.protected = protected
        self.exempt = exempt
        self.busy = threading.local()

    def install(self) -> None:
        """Watch from now on, for the life of the process."""
        sys.addaudithook(self._on_event)

    def wrap_native_writers(self) -> None:
        """Wrap the functions of torch that open a file without telling Python."""
        import torch

        torch.save = self._privatise_argument(torch.save, 1)
        torch.jit.save = self._privatise_argument(torch.jit.save, 1)

    def _privatise_argument(self, function: Callable[..., Any], position: int) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            target = args[position] if len(args) > position else kwargs.get("f")
            if isinstance(target, (str, bytes, os.PathLike)):
                self._guarded(target, True)
            return function(*args, **kwargs)

        return wrapped

    def _on_event(self, event: str, args: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = args
            if isinstance(flags, int) and flags & _WRITING:
                self._guarded(path, True)
        elif event in _CONTENT:
            for position in _CONTENT[event]:
                self._guarded(args[position], True)
        elif event in _NAME:
            for position in _NAME[event]:
                self._guarded(args[position], False)
        elif event == "import" and args[0] in ("safetensors.torch", "safetensors.numpy"):
            self._wrap_safetensors()

    def _guarded(self, path: Any, content: bool) -> None:
        if isinstance(path, int) or getattr(self.busy, "now", False):
            return
        self.busy.now = True
        try:
            try:
                name = os.fsdecode(path)
            except TypeError:
                return
            real = self.privatise(name, content)
            if self._is_protected(real):
                raise WriteBesideScriptError(
                    f"accelify verify refuses to write beside the script: {real} is named by an absolute path"
                )
        finally:
            self.busy.now = False

    def _is_protected(self, real: str) -> bool:
        if _inside(real, self.tree) or any(_inside(real, folder) for folder in self.exempt):
            return False
        for folder in self.protected:
            if _inside(real, folder):
                # Caches of tools (.cache, .triton) are theirs, not the script's.
                return not os.path.relpath(real, folder).startswith(".")
        return False

    def privatise(self, path: str, content: bool) -> str:
        """Open up every linked folder on the way to `path`, copy a linked file at its end, and return the real path.

        Args:
            path: as the script gave it.
            content: the file itself will be changed; False when only its name is.
        """
        waiting = [part for part in os.path.join(os.getcwd(), path).split("/") if part not in ("", ".")]
        current, followed = "/", 0
        while waiting:
            part = waiting.pop(0)
            if part == "..":
                current = os.path.dirname(current)
                continue
            place = os.path.join(current, part)
            if not os.path.islink(place) or (not waiting and not content):
                current = place
                continue
            target = os.readlink(place)
            ours = _inside(place, self.tree) and os.path.isabs(target) and not _inside(target, self.tree)
            if ours and os.path.isdir(target):
                self._open_up(place, target)
                current = place
            elif ours:
                if os.path.isfile(target):
                    _copy_over(place, target)
                current = place
            else:
                followed += 1
                if followed > 40:
                    return place
                waiting[:0] = [p for p in target.split("/") if p not in ("", ".")]
                current = "/" if os.path.isabs(target) else current
        return current

    def _open_up(self, place: str, target: str) -> None:
        fresh = f"{place}.accelify-{os.getpid()}-{threading.get_ident()}"
        os.mkdir(fresh)
        for name in os.listdir(target):
            with contextlib.suppress(OSError):
                os.symlink(os.path.join(target, name), os.path.join(fresh, name))
        try:
            # A folder cannot replace a link in one step; another rank may have done it in between.
            os.unlink(place)
            os.rename(fresh, place)
        except OSError:
            shutil.rmtree(fresh, ignore_errors=True)

    def _wrap_safetensors(self) -> None:
        # The submodules take the function over from the package when they are imported, which is about to happen.
        with contextlib.suppress(ImportError):
            package = importlib.import_module("safetensors")
            if not hasattr(package.serialize_file, "__wrapped__"):
                package.serialize_file = self._privatise_file(package.serialize_file)  # type: ignore[attr-defined]

    def _privatise_file(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapped(tensors: Any, filename: Any, *args: Any, **kwargs: Any) -> Any:
            self._guarded(filename, True)
            return function(tensors, filename, *args, **kwargs)

        return wrapped


def _copy_over(place: str, target: str) -> None:
    fresh = f"{place}.accelify-{os.getpid()}-{threading.get_ident()}"
    shutil.copy2(target, fresh)
    os.chmod(fresh, os.stat(fresh).st_mode | 0o200)
    os.replace(fresh, place)


def _inside(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")
