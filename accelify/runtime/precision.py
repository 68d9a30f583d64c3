"""Mixed precision: autocast regions, models that run in them, and loss scaling."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch

from .nested import convert_to_fp32
from .plugins import PRECISIONS, AutocastKwargs, GradScalerKwargs


class Precision:
    """What `mixed_precision` means on a device.

    Args:
        name: "no", "bf16" or "fp16".
        device: where the model runs.
        autocast: arguments of the autocast regions.
        scaling: arguments of the gradient scaler, made for fp16 only.

    Raises:
        ValueError: for another name.
    """

    def __init__(
        self,
        name: str,
        device: torch.device,
        autocast: AutocastKwargs | None = None,
        scaling: GradScalerKwargs | None = None,
    ) -> None:
        if name == "fp8":
            raise ValueError(
                'mixed_precision="fp8" needs hardware and libraries for it that are not here; use "bf16"'
            )
        if name not in PRECISIONS:
            raise ValueError(f"mixed_precision must be one of {', '.join(PRECISIONS)}, not {name!r}")
        self.name = name
        self.device_type = device.type
        self.dtype = PRECISIONS[name]
        self.autocast_kwargs = autocast or AutocastKwargs()
        self.scaler: torch.amp.GradScaler | None = None
        self.scaler_update_due = False
        # Set while the script's own `accelerator.autocast()` is active.
        self.in_script_region = 0
        if name == "fp16":
            arguments = vars(scaling) if scaling is not None else {}
            self.scaler = torch.amp.GradScaler(device.type, **arguments)

    @property
    def is_mixed(self) -> bool:
        return self.dtype is not None

    def autocast(self, kwargs: AutocastKwargs | None = None) -> contextlib.AbstractContextManager[Any]:
        """A fresh autocast region, which does nothing in full precision."""
        if self.dtype is None:
            return contextlib.nullcontext()
        kwargs = kwargs or self.autocast_kwargs
        return torch.autocast(
            self.device_type, dtype=self.dtype, enabled=kwargs.enabled, cache_enabled=kwargs.cache_enabled
        )

    @contextlib.contextmanager
    def script_region(self, kwargs: AutocastKwargs | None = None) -> Any:
        """The region that a script opens itself: in it prepared models run as they are."""
        self.in_script_region += 1
        try:
            with self.autocast(kwargs):
                yield
        finally:
            self.in_script_region -= 1

    def run(self, forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """A prepared model's forward: in autocast, outputs in float32, unless the script opened a region itself."""
        if self.dtype is None or self.in_script_region:
            return forward(*args, **kwargs)
        with self.autocast():
            output = forward(*args, **kwargs)
        return convert_to_fp32(output)

    def finish_update(self) -> None:
        """Update the loss scale after the steps of all optimizers, as `scaler.update()` does by hand."""
        if self.scaler_update_due and self.scaler is not None:
            self.scaler_update_due = False
            self.scaler.update()


class AutocastForward:
    """Stands in a module's `forward`, runs the module's own in mixed precision."""

    def __init__(self, module: torch.nn.Module, precision: Precision) -> None:
        self.module_forward = module.forward
        self.precision = precision

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.precision.run(self.module_forward, *args, **kwargs)


def run_in_precision(module: torch.nn.Module, precision: Precision) -> None:
    """Let `module` run in mixed precision from now on. Nothing happens in full precision."""
    if precision.is_mixed and not isinstance(module.forward, AutocastForward):
        module.forward = AutocastForward(module, precision)


def run_as_before(module: torch.nn.Module) -> None:
    """Undo `run_in_precision`."""
    if isinstance(module.__dict__.get("forward"), AutocastForward):
        del module.__dict__["forward"]
