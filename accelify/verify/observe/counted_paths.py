"""Which paths say anything about a script: not the interpreter's, not a library's cache, not a temporary file."""

from __future__ import annotations

import os
import sys
import sysconfig
import tempfile
from collections.abc import Iterable
from typing import Any

import accelify

_SYSTEM = ("/dev", "/proc", "/sys", "/run", "/etc")
_CACHES = ("~/.cache", "~/.config", "~/.triton", "~/.nv", "~/.local/share/jupyter")
_CACHE_VARIABLES = (
    "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "MPLCONFIGDIR", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR",
    "TORCH_EXTENSIONS_DIR", "NUMBA_CACHE_DIR", "CUDA_CACHE_PATH",
)  # fmt: skip
_RESOLVED_LIMIT = 50_000


class CountedPaths:
    """Answers for one process.

    Args:
        ignored: folders whose contents do not count, in addition to the interpreter's and the caches of libraries.
    """

    def __init__(self, ignored: Iterable[str] = ()) -> None:
        folders = [*ignored, *_SYSTEM, *(os.path.expanduser(cache) for cache in _CACHES)]
        folders += [os.environ[name] for name in _CACHE_VARIABLES if os.environ.get(name)]
        folders += [os.path.dirname(accelify.__file__), sys.prefix, sys.base_prefix, sys.exec_prefix]
        folders += [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
        self._temporary_folder = os.path.realpath(tempfile.gettempdir())
        # "/usr" as a prefix means the folders of the interpreter in it, not for all that is there.
        real = {os.path.realpath(folder) for folder in folders if folder}
        self._ignored = tuple(folder + os.sep for folder in real if folder not in ("/", "/usr", "/usr/local"))
        self._temporary: set[str] = set()
        self._resolved: dict[str, str] = {}

    def note_temporary(self, path: Any) -> None:
        """The module tempfile chose this name: what happens to it and below it is nobody else's business."""
        self._temporary.add(self._resolve(os.fsdecode(path)))

    def take_temporary(self, path: str) -> bool:
        """Whether a resolved path was such a name or below one; it gets another name now."""
        if path in self._temporary:
            self._temporary.discard(path)
            return True
        return self._is_below_temporary(path)

    def resolve(self, path: Any) -> str | None:
        """The real path, None for one that does not count. Its last part is not followed where it is a link."""
        try:
            name = os.fsdecode(path)
        except TypeError:
            return None
        real = self._resolve(name)
        return real if self.counts(real) else None

    def any(self, path: Any) -> str | None:
        """The real path, whether it counts or not; None for what is no path."""
        try:
            return self._resolve(os.fsdecode(path))
        except TypeError:
            return None

    def forget(self) -> None:
        """Links may lead elsewhere from now on."""
        self._resolved.clear()

    def counts(self, real: str) -> bool:
        if (real + os.sep).startswith(self._ignored) or "__pycache__" in real or "site-packages" in real:
            return False
        if real == self._temporary_folder or self._is_below_temporary(real):
            return False
        below = real.removeprefix(self._temporary_folder + os.sep)
        return not (below is not real and below.startswith(("torchinductor_", "torch_extensions", "pymp-")))

    def _is_below_temporary(self, real: str) -> bool:
        while real not in self._temporary:
            parent = os.path.dirname(real)
            if parent == real or not self._temporary:
                return False
            real = parent
        return True

    def _resolve(self, name: str) -> str:
        place = os.path.join(os.getcwd(), name)
        known = self._resolved.get(place)
        if known is None:
            folder, last = os.path.split(os.path.normpath(place))
            known = os.path.join(os.path.realpath(folder), last)
            if len(self._resolved) < _RESOLVED_LIMIT:
                self._resolved[place] = known
        return known
