"""The verbs every engine has. Defaults are those of one process."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from typing import Any

import torch

from ..precision import Precision, run_as_before
from ..state import PartialState


class Backend:
    """One engine.

    Args:
        process: rank and device.
        precision: of the models.
        options: handlers and plugins of the Accelerator, by name.
    """

    def __init__(self, process: PartialState, precision: Precision, options: dict[str, Any]) -> None:
        self.process = process
        self.precision = precision
        self.options = options
        self.world_size = process.num_processes
        self.rank = process.process_index
        self.device = process.device
        # What the loss of the last backward was multiplied by, loss scaling aside.
        self.last_scale = 1.0

    def place(self, model: torch.nn.Module) -> torch.nn.Module:
        """Put a model where it runs."""
        return model.to(self.device)

    def wrap(self, model: torch.nn.Module, evaluation: bool = False) -> torch.nn.Module:
        """Make a placed model fit for training with this engine."""
        return model

    def unwrap(self, model: torch.nn.Module, keep_precision: bool = True) -> torch.nn.Module:
        """The script's own module."""
        if not keep_precision:
            run_as_before(model)
        return model

    def backward(self, loss: torch.Tensor, sync: bool, **kwargs: Any) -> None:
        """The backward pass; with `sync`, gradients are averaged over ranks when it returns."""
        loss.backward(**kwargs)  # type: ignore[no-untyped-call]

    def no_sync(self, models: Iterable[torch.nn.Module]) -> contextlib.AbstractContextManager[Any]:
        """A region whose backward passes leave gradients on their ranks."""
        return contextlib.nullcontext()

    def sync_next(self, model: torch.nn.Module) -> None:
        """Average gradients in the next backward although the forward ran under `no_sync`."""

    def add_parameters(self, parameters: list[torch.Tensor]) -> None:
        """Also train these, which belong to no prepared model."""

    def clip_grad_norm(
        self, parameters: Iterable[torch.Tensor], max_norm: float, norm_type: float, **kwargs: Any
    ) -> torch.Tensor:
        """Clip complete gradients to a norm; returns the norm before."""
        return torch.nn.utils.clip_grad_norm_(parameters, max_norm, norm_type=norm_type, **kwargs)

    def clip_grad_value(self, parameters: Iterable[torch.Tensor], clip_value: float) -> None:
        """Clip complete gradients element by element."""
        torch.nn.utils.clip_grad_value_(parameters, clip_value)

    def shared_closure(self, closure: Callable[[], Any]) -> Callable[[], Any]:
        """A closure whose loss is the same on every rank."""
        return closure

    def state_dict(self, model: torch.nn.Module) -> dict[str, Any]:
        """The model's weights, whole, under the script's own names."""
        return self.unwrap(model).state_dict()

    def join(self, models: list[torch.nn.Module]) -> contextlib.AbstractContextManager[Any]:
        """A region in which ranks may run out of batches at different times."""
        return contextlib.nullcontext()
