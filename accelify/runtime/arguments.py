"""Checks of what `Accelerator(...)` and `prepare(...)` are given."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from .plugins import (
    AutocastKwargs,
    DistributedDataParallelKwargs,
    GradScalerKwargs,
    InitProcessGroupKwargs,
    KwargsHandler,
    ProfileKwargs,
)

_HANDLERS: dict[type[KwargsHandler], str] = {
    AutocastKwargs: "autocast",
    DistributedDataParallelKwargs: "ddp",
    GradScalerKwargs: "scaler",
    InitProcessGroupKwargs: "process_group",
    ProfileKwargs: "profile",
}


def is_scheduler(item: Any) -> bool:
    """A learning rate scheduler, of torch's or with torch's methods."""
    if isinstance(item, torch.optim.lr_scheduler.LRScheduler):
        return True
    return hasattr(item, "step") and hasattr(item, "optimizer") and hasattr(item, "state_dict")


def sort_handlers(handlers: Iterable[KwargsHandler]) -> dict[str, Any]:
    """Handlers by the name of what they are for; ValueError for two of a kind or an unknown one."""
    found: dict[str, Any] = {}
    for handler in handlers:
        name = next((n for kind, n in _HANDLERS.items() if isinstance(handler, kind)), None)
        if name is None:
            raise ValueError(f"kwargs_handlers does not take a {type(handler).__name__}")
        if name in found:
            raise ValueError(f"kwargs_handlers has two {type(handler).__name__}")
        found[name] = handler
    return found


def refuse_engines(**plugins: Any) -> None:
    """ValueError for a plugin of an engine that is not here."""
    for name, plugin in plugins.items():
        if plugin is not None:
            raise ValueError(
                f"Accelerator({name}=...) asks for an engine that this version does not have: it runs on one process "
                "or with DistributedDataParallel"
            )


def refuse_flags(flags: dict[str, Any]) -> None:
    """ValueError with a pointer for old flags, TypeError for unknown ones."""
    for name in flags:
        if name in ("fp16", "bf16", "fp8"):
            raise ValueError(f'Accelerator({name}=True) is written Accelerator(mixed_precision="{name}")')
        raise TypeError(f"Accelerator() has no argument {name!r}")
