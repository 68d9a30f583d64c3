"""Renames that work on the real disk and not on an overlay, made there by copying.

An overlay cannot rename a folder that is in its lower layer, and two overlays of one disk are two file systems.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from typing import Any


def install() -> None:
    """Let `os.rename`, `os.replace` and `os.link` of this process go on where the kernel refuses to."""
    os.rename = _or_copy(os.rename, _moved)
    os.replace = _or_copy(os.replace, _moved)
    os.link = _or_copy(os.link, _copied)


def _or_copy(function: Callable[..., None], instead: Callable[[Any, Any], None]) -> Callable[..., None]:
    def wrapped(src: Any, dst: Any, *args: Any, **kwargs: Any) -> None:
        try:
            function(src, dst, *args, **kwargs)
        except OSError as error:
            if error.errno != errno.EXDEV or args or any(value is not None for value in kwargs.values()):
                raise
            instead(src, dst)

    wrapped.__name__ = wrapped.__qualname__ = function.__name__
    wrapped.__wrapped__ = function  # type: ignore[attr-defined]
    return wrapped


def _moved(src: Any, dst: Any) -> None:
    if os.path.isdir(src) and not os.path.islink(src):
        if os.path.lexists(dst):
            # Only an empty folder can be renamed onto; the system's error where it is not.
            os.rmdir(dst)
        shutil.copytree(src, dst, symlinks=True)
        shutil.rmtree(src)
    else:
        _copied(src, dst)
        os.unlink(src)


def _copied(src: Any, dst: Any) -> None:
    if os.path.isdir(dst) and not os.path.islink(dst):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), src, None, dst)
    fresh = f"{os.fsdecode(dst)}.{os.getpid()}"
    shutil.copy2(src, fresh, follow_symlinks=False)
    os.replace(fresh, dst)
