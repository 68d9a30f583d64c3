"""Engines: one file each, with the verbs of `base.Backend`. `make_backend` chooses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..state import PartialState

if TYPE_CHECKING:
    from ..precision import Precision
    from .base import Backend


def make_backend(process: PartialState, precision: Precision, options: dict[str, Any]) -> Backend:
    """The engine for this run. Adding one means adding its file and its line here.

    Args:
        process: rank and device.
        precision: of the models.
        options: handlers and plugins of the Accelerator, by name.
    """
    if process.num_processes == 1:
        from .single import SingleBackend

        return SingleBackend(process, precision, options)
    from .ddp import DDPBackend

    return DDPBackend(process, precision, options)
