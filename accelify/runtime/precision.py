"""Mixed precision: autocast regions, models that run in them, and loss scaling."""

from __future__ import annotations

import contextlib
import functools
import inspect
import types
from collections.abc import Callable
from typing import Any

import torch
from torch.amp.grad_scaler import OptState

from .nested import convert_to_fp32
from .plugins import PRECISIONS, AutocastKwargs, GradScalerKwargs


class LossScaler(torch.amp.GradScaler):
    """torch's gradient scaler, whose scale is updated when it is used next.

    By hand `scaler.update()` follows the steps of all optimizers. A converted script has no such line, and which
    optimizer's step is the last is known only when something comes after it. Asking for the scale or the state answers
    with what the update will give, and updates nothing: logging it between two optimizers' steps changes neither.
    """

    update_due = False

    def update_if_due(self) -> None:
        """Update the scale, where an optimizer has stepped since the last time."""
        if self.update_due:
            self.update()

    def update(self, new_scale: float | torch.Tensor | None = None) -> None:
        """As torch's."""
        self.update_due = False
        super().update(new_scale)

    def scale(self, outputs: Any) -> Any:
        """As torch's."""
        self.update_if_due()
        return super().scale(outputs)

    def step(self, optimizer: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> Any:
        """As torch's; a second step of one optimizer begins the next update's steps."""
        if self._per_optimizer_states[id(optimizer)]["stage"] is OptState.STEPPED:
            self.update_if_due()
        return super().step(optimizer, *args, **kwargs)

    def get_scale(self) -> float:
        """As torch's, after the steps so far."""
        return float(self._updated()[0].item()) if self.update_due else super().get_scale()

    def state_dict(self) -> dict[str, Any]:
        """As torch's, after the steps so far."""
        state = super().state_dict()
        if self.update_due:
            scale, growth = self._updated()
            state |= {"scale": scale.item(), "_growth_tracker": int(growth.item())}
        return state

    def _updated(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Scale and growth tracker as the update that is due will leave them."""
        assert self._scale is not None
        assert self._growth_tracker is not None
        scale, growth = self._scale.clone(), self._growth_tracker.clone()
        found = [
            f.to(scale.device)
            for state in self._per_optimizer_states.values()
            for f in state["found_inf_per_device"].values()
        ]
        if found:
            torch._amp_update_scale_(
                scale,
                growth,
                torch.stack(found).sum(0),
                self._growth_factor,
                self._backoff_factor,
                self._growth_interval,
            )
        return scale, growth


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
        self.scaler: LossScaler | None = None
        # Set while the script's `accelerator.autocast()` is active.
        self.in_script_region = 0
        if name == "fp16" and (scaling is None or scaling.enabled):
            arguments = vars(scaling) if scaling is not None else {}
            self.scaler = LossScaler(device.type, **arguments)

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


def run_in_precision(module: torch.nn.Module, precision: Precision) -> None:
    """Let `module` run in mixed precision from now on. Nothing happens in full precision.

    Its `forward` stays a method of the module with the signature of the script's: libraries look there for what a model
    takes. A file that the module is written to contains the class's method.
    """
    if not precision.is_mixed or _is_in_precision(module):
        return
    before: Any = vars(module).get("forward")
    own: Any = type(module).forward if before is None else getattr(before, "__func__", None)

    def forward(self: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        # `before` may be any callable that the script has put there; a method is one of the copy, too, in a copy.
        run: Any = before if own is None else functools.partial(own, self)
        return precision.run(run, *args, **kwargs)

    functools.update_wrapper(forward, before if own is None else own)
    with contextlib.suppress(ValueError, TypeError):  # some made in C have none
        signature = inspect.signature(before if own is None else own)
        if own is None:
            this = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
            signature = signature.replace(parameters=[this, *signature.parameters.values()])
        forward.__signature__ = signature  # type: ignore[attr-defined]
    forward._before = before  # type: ignore[attr-defined]
    # Files name a method by this, whatever the script's method is called.
    forward.__name__ = "forward"
    module.forward = types.MethodType(forward, module)


def _is_in_precision(module: torch.nn.Module) -> bool:
    return hasattr(getattr(vars(module).get("forward"), "__func__", None), "_before")


def run_as_before(module: torch.nn.Module) -> None:
    """Undo `run_in_precision`."""
    if _is_in_precision(module):
        before = module.forward.__func__._before  # type: ignore[attr-defined]
        del module.__dict__["forward"]
        if before is not None:
            module.forward = before
