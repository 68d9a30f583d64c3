"""Where in the script the runtime was called, for errors."""

from __future__ import annotations

import os
import sys
import sysconfig
from pathlib import Path
from types import FrameType

import torch

_PACKAGE = str(Path(__file__).parent)
_LIBRARIES = (sysconfig.get_path("stdlib"), os.path.dirname(torch.__file__), "<frozen ")


def script_line() -> str:
    """Where in the script the runtime was called."""
    return line_of(sys._getframe(1))


def _is_of_the_script(frame: FrameType) -> bool:
    name = frame.f_code.co_filename
    return not (name.startswith((_PACKAGE, *_LIBRARIES)) or f"{os.sep}site-packages{os.sep}" in name)


def line_of(frame: FrameType | None) -> str:
    """The innermost line of the script, seen from a frame in it or in what it called."""
    outer = frame
    while outer is not None and not _is_of_the_script(outer):
        outer = outer.f_back
    frame = outer or frame
    return (
        "an unknown line"
        if frame is None
        else f"{os.path.relpath(frame.f_code.co_filename)}:{frame.f_lineno}"
    )
