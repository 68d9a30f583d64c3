"""Functions that write, read or ask without an audit event of Python: those of the system, and libraries in C++."""

from __future__ import annotations

import functools
import os
import pathlib
import shutil
import sys
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from accelify.verify.observe.effects import Effects

# Module, function, name and position of its path.
_WRITERS = (
    ("torch", "save", "f", 1),
    ("torch.jit", "save", "f", 1),
    ("torch.export", "save", "f", 1),
    ("safetensors.torch", "serialize_file", "filename", 1),
    ("safetensors.numpy", "serialize_file", "filename", 1),
    ("cv2", "imwrite", "filename", 0),
    ("soundfile", "write", "file", 0),
    ("torchaudio", "save", "uri", 0),
    ("torchvision.io", "write_jpeg", "filename", 1),
    ("torchvision.io", "write_png", "filename", 1),
    ("pyarrow.parquet", "write_table", "where", 1),
    ("pyarrow.feather", "write_feather", "dest", 1),
)
_READERS = (
    ("torch", "load", "f", 0),
    ("torch.jit", "load", "f", 0),
    ("safetensors.torch", "load_file", "filename", 0),
    ("cv2", "imread", "filename", 0),
    ("soundfile", "read", "file", 0),
    ("torchaudio", "load", "uri", 0),
    ("pyarrow.parquet", "read_table", "source", 0),
)
_QUESTIONS = ("stat", "lstat", "access")
_SOURCE_READERS = ("/linecache.py", "/tokenize.py", "/inspect.py")


def reads_source(frame: FrameType) -> bool:
    """Whether the frame is of the import system, or of what looks up lines for a traceback."""
    file = frame.f_code.co_filename
    return file.startswith("<frozen importlib") or file.endswith(_SOURCE_READERS)


def wrap_os(effects: Effects) -> None:
    """Questions about paths, and calls that take several steps for one effect."""
    for name in _QUESTIONS:
        function = getattr(os, name)
        wrapped = _asking(function, effects)
        for supported in (
            os.supports_dir_fd,
            os.supports_fd,
            os.supports_follow_symlinks,
            os.supports_effective_ids,
        ):
            if function in supported:
                supported.add(wrapped)
        setattr(os, name, wrapped)
    utime, rmtree, makedirs, mkdir = os.utime, shutil.rmtree, os.makedirs, pathlib.Path.mkdir

    @functools.wraps(utime)
    def watched_utime(path: Any, *args: Any, **kwargs: Any) -> None:
        effects.change("chmod", path)
        utime(path, *args, **kwargs)

    @functools.wraps(rmtree)
    def watched_rmtree(path: Any, *args: Any, **kwargs: Any) -> Any:
        with effects.context.pause():
            there = os.path.lexists(path)
        effects.paths.forget()
        if there:
            effects.change("rmtree", path)
        else:
            effects.look("ask", path)
        with effects.context.pause():
            return rmtree(path, *args, **kwargs)

    @functools.wraps(makedirs)
    def watched_makedirs(name: Any, mode: int = 0o777, exist_ok: bool = False) -> None:
        with effects.making_folders(exist_ok, True):
            makedirs(name, mode, exist_ok)

    @functools.wraps(mkdir)
    def watched_mkdir(
        self: pathlib.Path, mode: int = 0o777, parents: bool = False, exist_ok: bool = False
    ) -> None:
        with effects.making_folders(exist_ok, parents):
            mkdir(self, mode, parents, exist_ok)

    os.utime = watched_utime
    shutil.rmtree = watched_rmtree  # type: ignore[assignment]
    os.makedirs = watched_makedirs
    pathlib.Path.mkdir = watched_mkdir  # type: ignore[method-assign]


def wrap_native_writers(effects: Effects) -> Callable[[str], None]:
    """Wrap what is imported, and return what wraps the rest: to be called with the name of a module on its import.

    A module is not there yet when its import is announced, so its functions are wrapped at the next import of any.
    """
    waiting: dict[str, list[tuple[str, str, str, int]]] = {}
    for kind, table in (("write", _WRITERS), ("read", _READERS)):
        for module, function, name, position in table:
            waiting.setdefault(module, []).append((kind, function, name, position))
    announced: set[str] = set()

    def wrap(module: str) -> None:
        loaded = sys.modules.get(module)
        spec = getattr(loaded, "__spec__", None)
        if loaded is None or getattr(spec, "_initializing", False):
            return
        for kind, function, name, position in waiting.pop(module):
            original = loaded.__dict__.get(function)
            if original is not None:
                setattr(loaded, function, _covered(original, effects, kind, name, position))

    def on_import(module: str) -> None:
        if module in waiting:
            announced.add(module)
        for name in list(announced):
            if name in waiting:
                wrap(name)

    for module in list(waiting):
        announced.add(module)
        wrap(module)
    return on_import


def _asking(function: Callable[..., Any], effects: Effects) -> Callable[..., Any]:
    @functools.wraps(function)
    def asking(path: Any, *args: Any, **kwargs: Any) -> Any:
        if type(path) is not int and kwargs.get("dir_fd") is None and not reads_source(sys._getframe(1)):
            effects.look("ask", path)
        return function(path, *args, **kwargs)

    return asking


def _covered(
    function: Callable[..., Any], effects: Effects, kind: str, name: str, position: int
) -> Callable[..., Any]:
    @functools.wraps(function)
    def covered(*args: Any, **kwargs: Any) -> Any:
        path = args[position] if len(args) > position else kwargs.get(name)
        with effects.covering(kind, path):
            return function(*args, **kwargs)

    return covered
