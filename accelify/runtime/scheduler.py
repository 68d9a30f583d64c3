"""The prepared learning rate scheduler: follows the original's schedule, whatever the number of processes."""

from __future__ import annotations

from typing import Any

import torch
from torch.optim.lr_scheduler import ReduceLROnPlateau

from .collectives import broadcast_tensors
from .optimizer import AcceleratedOptimizer
from .state import GradientState, PartialState


def _shared_metric(metric: Any) -> Any:
    if PartialState().num_processes == 1:
        return metric
    value = torch.tensor(float(metric), dtype=torch.float64)
    broadcast_tensors([value])
    return value.item()


class AcceleratedScheduler:
    """Wraps a torch scheduler.

    `step()` inside the loop over a prepared loader advances by the number of batches of the original script that this
    optimizer step represents, in a pass's last step also by those that `drop_last` leaves out after it; outside of it
    (once an epoch), by one. Inside an accumulation window, but with `adjust_scheduler=False` (see
    `GradientAccumulationPlugin`), and after a step that was skipped for an overflow in fp16, it does not advance. With
    `schedule_by_processes` it advances by the number of processes there, at most to its `total_steps`. A step with an
    argument (the metric of ReduceLROnPlateau, a fractional epoch) is passed on as it is, once; a metric is the main
    process's on every rank, since ranks with different learning rates would train different models.

    Args:
        scheduler: the script's.
        optimizers: the optimizers it steps with.
        step_with_optimizer: False: every call advances once, whatever the optimizers do.
        split_batches: the script's batch size is that of all processes together; asked with
            `schedule_by_processes` alone, elsewhere the loaders know by themselves.
    """

    def __init__(
        self,
        scheduler: Any,
        optimizers: AcceleratedOptimizer | list[AcceleratedOptimizer],
        step_with_optimizer: bool = True,
        split_batches: bool = False,
    ) -> None:
        self.scheduler = scheduler
        self.optimizers = list(optimizers) if isinstance(optimizers, (list, tuple)) else [optimizers]
        self.step_with_optimizer = step_with_optimizer
        self.split_batches = split_batches
        self.gradient_state = GradientState()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "scheduler" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self.__dict__["scheduler"], name)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """The scheduler's class: scripts ask `isinstance(scheduler, ReduceLROnPlateau)` how to step it."""
        return type(self.__dict__.get("scheduler", self))

    def __repr__(self) -> str:
        return repr(self.scheduler)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """A file that the whole scheduler is written to contains the script's: it loads without this package."""
        del protocol  # `__reduce_ex__(2)` insists on the class of the object
        return self.scheduler.__reduce_ex__(1)

    def step(self, *args: Any, **kwargs: Any) -> None:
        """Advance; see the class."""
        if args or kwargs or not self.step_with_optimizer:
            if args and isinstance(self.scheduler, ReduceLROnPlateau):
                args = (_shared_metric(args[0]), *args[1:])
            elif "metrics" in kwargs:
                kwargs["metrics"] = _shared_metric(kwargs["metrics"])
            self.scheduler.step(*args, **kwargs)
            return
        state = self.gradient_state
        if state.loaders and not state.sync_gradients:
            if not state.plugin.adjust_scheduler:
                self._go_on()
            return
        if self.optimizers and all(o.step_was_skipped for o in self.optimizers):
            return
        self._go_on()

    def _go_on(self) -> None:
        for _ in range(self._advance()):
            self.scheduler.step()

    def _advance(self) -> int:
        state = self.gradient_state
        if not state.loaders:
            return 1
        if state.plugin.schedule_by_processes:
            steps = 1 if self.split_batches else PartialState().num_processes
            total = getattr(self.scheduler, "total_steps", None)
            # A OneCycleLR that has reached its end raises where it is stepped again.
            return steps if total is None else max(0, min(steps, total - self.scheduler.last_epoch))
        if state.window.in_use and state.plugin.adjust_scheduler:
            return state.window.advance
        shares = state.loaders.of_loop().shares
        return 1 if shares is None else shares.batches + shares.left_out

    def get_last_lr(self) -> Any:
        """As torch's."""
        return self.scheduler.get_last_lr()

    def state_dict(self) -> dict[str, Any]:
        """As torch's."""
        return self.scheduler.state_dict()  # type: ignore[no-any-return]

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """As torch's."""
        self.scheduler.load_state_dict(state_dict)

    def get_lr(self) -> Any:
        """As torch's."""
        return self.scheduler.get_lr()

    def print_lr(self, *args: Any, **kwargs: Any) -> Any:
        """As torch's."""
        return self.scheduler.print_lr(*args, **kwargs)
