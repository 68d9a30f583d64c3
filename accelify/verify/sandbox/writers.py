"""Functions of libraries that open a file without Python's doing: their paths are led away like those of `open`."""

from __future__ import annotations

import functools
import importlib.abc
import importlib.machinery
import sys
import types
from collections.abc import Callable, Sequence
from typing import Any

from accelify.verify.sandbox.calls import Calls

# Module to function, position and name of its path, and whether it writes.
_FUNCTIONS: dict[str, tuple[tuple[str, int, str, bool], ...]] = {
    "torch": (("save", 1, "f", True), ("load", 0, "f", False), ("from_file", 0, "filename", True)),
    "torch._C": (("PyTorchFileWriter", 0, "", True), ("PyTorchFileReader", 0, "", False)),
    "torch.jit": (("save", 1, "f", True), ("load", 0, "f", False)),
    "torch.jit._script": (("ScriptModule.save", 1, "f", True), ("RecursiveScriptModule.save", 1, "f", True)),
    "safetensors": (("serialize_file", 1, "filename", True), ("safe_open", 0, "filename", False)),
    "sqlite3": (("connect", 0, "database", True),),
    "h5py": (("File.__init__", 1, "name", True),),
    "cv2": (("imwrite", 0, "filename", True), ("imread", 0, "filename", False)),
    "pyarrow": (("OSFile", 0, "path", True),),
    "pyarrow.parquet": (("write_table", 1, "where", True), ("read_table", 0, "source", False)),
}


def install(calls: Calls) -> None:
    """Wrap what is imported already, and the rest when it will be."""
    for module in _FUNCTIONS:
        if module in sys.modules:
            _wrap(calls, sys.modules[module])
    sys.meta_path.insert(0, _Finder(calls))


def _wrap(calls: Calls, module: types.ModuleType) -> None:
    for name, position, parameter, writes in _FUNCTIONS[module.__name__]:
        holder: Any = module
        *outer, last = name.split(".")
        for part in outer:
            holder = getattr(holder, part, None)
        function = getattr(holder, last, None)
        if function is not None and not isinstance(function, type):
            setattr(
                holder, last, _led(calls.private if writes else calls.readable, function, position, parameter)
            )
        elif isinstance(function, type):
            setattr(holder, last, _led_class(calls, function, position, parameter, writes))


def _led(
    way: Callable[[Any], Any], function: Callable[..., Any], position: int, parameter: str
) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        if len(args) > position:
            args = (*args[:position], _path(way, args[position]), *args[position + 1 :])
        elif parameter in kwargs:
            kwargs[parameter] = _path(way, kwargs[parameter])
        return function(*args, **kwargs)

    return wrapped


def _led_class(calls: Calls, kind: type, position: int, parameter: str, writes: bool) -> Any:
    """A class that opens a file when it is made, as a function that makes it."""
    return _led(calls.private if writes else calls.readable, kind, position, parameter)


def _path(way: Callable[[Any], Any], value: Any) -> Any:
    # A database can have no file, or a URI; what is no path is left alone.
    if isinstance(value, str) and (value in ("", ":memory:") or "://" in value or value.startswith("file:")):
        if not value.startswith("file:"):
            return value
        name, mark, options = value.removeprefix("file:").partition("?")
        return f"file:{way(name)}{mark}{options}" if name.startswith("/") else value
    return way(value)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds nothing by itself, but wraps what the others find."""

    def __init__(self, calls: Calls) -> None:
        self.calls = calls

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in _FUNCTIONS:
            return None
        for finder in sys.meta_path:
            if finder is not self and (spec := finder.find_spec(fullname, path, target)) is not None:
                if spec.loader is not None and hasattr(spec.loader, "exec_module"):
                    vars(spec.loader)["exec_module"] = self._executing(spec.loader.exec_module)
                return spec
        return None

    def _executing(self, execute: Callable[[types.ModuleType], None]) -> Callable[[types.ModuleType], None]:
        def wrapped(module: types.ModuleType) -> None:
            execute(module)
            _wrap(self.calls, module)

        return wrapped
