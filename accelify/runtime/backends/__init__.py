"""Engines: one file each, with the verbs of `base.Backend`. `make_backend` chooses."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..state import PartialState

if TYPE_CHECKING:
    from ..precision import Precision
    from .base import Backend


@dataclass(frozen=True)
class Engine:
    """An engine's module and class, when it is the one that a run asks for, and whose options it takes."""

    module: str
    name: str
    is_asked_for: Callable[[PartialState, dict[str, Any]], bool]
    takes: frozenset[str] = frozenset()


# Options that ask for an engine, and the message where the engine that runs does not take them.
_ASKING = {
    "deepspeed": "DeepSpeedPlugin",
    "fsdp": "FSDP plugin",
    "parallelism": "ParallelismConfig",
    "xla": "XLAPlugin",
}

# The first that is asked for runs. Adding an engine means adding its file and its line here.
ENGINES = (
    Engine("single", "SingleBackend", lambda process, options: process.is_beside, frozenset(_ASKING)),
    Engine(
        "deepspeed",
        "DeepSpeedBackend",
        lambda process, options: "deepspeed" in options,
        frozenset({"deepspeed"}),
    ),
    Engine("xla", "XLABackend", lambda process, options: process.device.type == "xla", frozenset({"xla"})),
    Engine(
        "tensor_parallel",
        "TensorParallelBackend",
        lambda process, options: getattr(options.get("parallelism"), "tp_size", 1) > 1,
        frozenset({"fsdp", "parallelism"}),
    ),
    Engine(
        "fsdp",
        "FSDPBackend",
        lambda process, options: "fsdp" in options or "parallelism" in options,
        frozenset({"fsdp", "parallelism"}),
    ),
    Engine("single", "SingleBackend", lambda process, options: process.num_processes == 1),
    Engine("ddp", "DDPBackend", lambda process, options: True),
)


def make_backend(process: PartialState, precision: Precision, options: dict[str, Any]) -> Backend:
    """The engine for this run.

    Args:
        process: rank and device.
        precision: of the models.
        options: handlers and plugins of the Accelerator, by name.

    Raises:
        ValueError: two engines are asked for, or one that this version or this machine does not have.
    """
    engine = next(e for e in ENGINES if e.is_asked_for(process, options))
    for name, plugin in _ASKING.items():
        if name in options and name not in engine.takes:
            raise ValueError(
                f"this run works with the engine {engine.module}, which takes no {plugin}: leave one of them out"
            )
    kind = getattr(importlib.import_module(f".{engine.module}", __name__), engine.name)
    return kind(process, precision, options)  # type: ignore[no-any-return]
