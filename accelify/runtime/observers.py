"""Hooks for tools that watch a run, such as `accelify verify`.

An observer is called in every `accelerator.backward`, before the backward pass, as
`observer(loss, scale, accelerator)`: `loss` is detached and unscaled, and the mean over ranks of
`loss * scale` is the number that the original script calls `backward()` on (loss scaling of fp16 aside). Where
`accelerator.gradient_state.loss_weight` is not None, it is their mean weighed by that, as `backward(weight=)` was
called with it. Observers must not change the loss nor draw random numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from .accelerator import Accelerator

BackwardObserver = Callable[["torch.Tensor", float, "Accelerator"], None]

backward_observers: list[BackwardObserver] = []


def add_backward_observer(observer: BackwardObserver) -> BackwardObserver:
    """Call `observer(loss, scale, accelerator)` in every backward from now on; returns it, to be removed later."""
    backward_observers.append(observer)
    return observer


def remove_backward_observer(observer: BackwardObserver) -> None:
    """Stop calling `observer`; one that was never added is an error (ValueError)."""
    backward_observers.remove(observer)
