"""Libraries are watched once the script has imported them; nothing is imported for it."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

Callback = Callable[[ModuleType], None]


class _Finder(MetaPathFinder):
    """Finds what the others find, and calls back when a module has been executed."""

    def __init__(self) -> None:
        self.callbacks: dict[str, list[Callback]] = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in self.callbacks:
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            if finder is self or find is None:
                continue
            spec: ModuleSpec | None = find(fullname, path, target)
            if spec is not None:
                self._follow(spec)
                return spec
        return None

    def _follow(self, spec: ModuleSpec) -> None:
        loader: Any = spec.loader
        execute = getattr(loader, "exec_module", None)
        if execute is None:
            return

        def exec_module(module: ModuleType) -> None:
            with contextlib.suppress(AttributeError):
                del loader.exec_module
            execute(module)
            for callback in self.callbacks.pop(spec.name, []):
                callback(module)

        # A built-in module's loader is a class and holds no attribute of one module.
        with contextlib.suppress(AttributeError, TypeError):
            if not isinstance(loader, type):
                loader.exec_module = exec_module


_FINDER = _Finder()


def when_imported(name: str, callback: Callback) -> None:
    """Call `callback` with the module of that name: now where it is imported already, else once it is."""
    module = sys.modules.get(name)
    if module is not None:
        callback(module)
        return
    if _FINDER not in sys.meta_path:
        sys.meta_path.insert(0, _FINDER)
    _FINDER.callbacks.setdefault(name, []).append(callback)
