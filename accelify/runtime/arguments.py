"""Checks of the arguments of `Accelerator(...)` and `prepare(...)`."""

from __future__ import annotations

import importlib
import json
import os
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
    # What clears gradients is an optimizer, though it has all of these where it answers for the one that it keeps.
    named = all(hasattr(item, name) for name in ("step", "optimizer", "state_dict"))
    return named and not hasattr(item, "zero_grad")


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


# Name of an engine's options: the module and class of its plugin. An engine's helper classes may be several.
_PLUGINS = {
    "deepspeed": ("backends.deepspeed_plugin", "DeepSpeedPlugin"),
    "fsdp": ("backends.fsdp_plugin", "FullyShardedDataParallelPlugin"),
    "parallelism": ("backends.parallelism", "ParallelismConfig"),
    "xla": ("backends.xla_plugin", "XLAPlugin"),
    "dynamo": ("plugins", "TorchDynamoPlugin"),
}


def engine_options(given: dict[str, Any], variable: str | None = None) -> dict[str, Any]:
    """Plugins of engines by the name of their options: from the script, else from the launcher.

    Args:
        given: by name; None where the script sets nothing.
        variable: JSON of sections of the configuration file by name; default: environment variable ACCELIFY_ENGINE.

    Raises:
        ValueError: the variable is not what a launcher writes, or a section's value cannot be.
    """
    found = {name: plugin for name, plugin in given.items() if plugin is not None}
    text = os.environ.get("ACCELIFY_ENGINE", "") if variable is None else variable
    if not text:
        return found
    try:
        sections = dict(json.loads(text))
    except (ValueError, TypeError):
        raise ValueError(
            "the environment variable ACCELIFY_ENGINE is not the JSON that accelify launch writes; unset it"
        ) from None
    for name, section in sections.items():
        if name not in _PLUGINS:
            raise ValueError(f"ACCELIFY_ENGINE names the engine {name!r}; known are {', '.join(_PLUGINS)}")
        if name not in found:
            found[name] = plugin_class(name).from_config(section)
    return found


def engine_precision(options: dict[str, Any]) -> str | None:
    """The mixed precision that an engine's configuration asks for, None where none does."""
    return next((p.mixed_precision for p in options.values() if getattr(p, "mixed_precision", None)), None)


def plugin_class(name: str) -> Any:
    """The plugin class of an engine's options; ValueError where this version has none."""
    module, kind = _PLUGINS[name]
    return getattr(importlib.import_module(f".{module}", __package__), kind)


def refuse_flags(flags: dict[str, Any]) -> None:
    """ValueError with a pointer for old flags, TypeError for unknown ones."""
    for name in flags:
        if name in ("fp16", "bf16", "fp8"):
            raise ValueError(f'Accelerator({name}=True) is written Accelerator(mixed_precision="{name}")')
        raise TypeError(f"Accelerator() has no argument {name!r}")


def not_split(model: torch.nn.Module, processes: int, device: torch.device) -> torch.nn.Module:
    """A model, after a look that no DataParallel spreads it over the GPUs of other processes.

    Raises:
        ValueError: it or a part of it is in a DataParallel that is not on the process's GPU alone.
    """
    for name, part in model.named_modules() if processes > 1 else ():
        if isinstance(part, torch.nn.DataParallel) and any(i != device.index for i in part.device_ids):
            which = f"the part `{name}` of the model" if name else "the model"
            raise ValueError(
                f"{which} is in a torch.nn.DataParallel, which spreads it over GPUs that other processes work on: "
                "give prepare its `.module`, or take the wrapper out where it is made"
            )
    return model
