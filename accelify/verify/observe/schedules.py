"""What prepared schedulers set, and the same set in another run.

A prepared scheduler steps once for each process, so its rates follow the data. The original in larger batches, which
is what such a run is compared with, steps once: for the two to be compared it gets the rates that the run had, after
each of the script's calls. That these are the original's at every sample is checked separately (`compare.schedule`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

from torch.optim import lr_scheduler

from accelify.verify.observe.context import Context
from accelify.verify.observe.sites import Site

_SET_BY_SCHEDULERS = ("lr", "momentum", "betas")

Settings = list[dict[str, Any]]


def watch(context: Context, accelerated: Any) -> None:
    """Write an event for each call of a runtime's prepared scheduler: where, and what the groups have after it."""
    function: Callable[..., Any] = accelerated.step

    @functools.wraps(function)
    def step(scheduler: Any, *args: Any, **kwargs: Any) -> Any:
        result = function(scheduler, *args, **kwargs)
        site = context.sites.here()
        groups = scheduler.scheduler.optimizer.param_groups
        context.emit("schedule", site=site, settings=[_settings(group) for group in groups])
        return result

    accelerated.step = step


def impose(context: Context, wanted: list[tuple[Site, list[Settings]]]) -> None:
    """After each call of a scheduler at one of these places, set what another run had after the same call.

    Args:
        context: knows where the script is.
        wanted: for each place the settings of all groups after each call there, in order.
    """
    calls: dict[Site, Iterator[Settings]] = {(file, line): iter(found) for (file, line), found in wanted}
    for kind in {lr_scheduler.LRScheduler, *_subclasses(lr_scheduler.LRScheduler)}:
        if "step" in kind.__dict__:
            setattr(kind, "step", _imposed(kind.__dict__["step"], context, calls))  # noqa: B010 (a method)


def _imposed(
    function: Callable[..., Any], context: Context, calls: dict[Site, Iterator[Settings]]
) -> Callable[..., Any]:
    @functools.wraps(function)
    def step(scheduler: Any, *args: Any, **kwargs: Any) -> Any:
        with context.pause():
            outermost = not getattr(scheduler, "accelify_stepping", False)
            scheduler.accelify_stepping = True
            try:
                result = function(scheduler, *args, **kwargs)
            finally:
                if outermost:
                    del scheduler.accelify_stepping
        site = context.sites.here()
        if outermost and site in calls and (settings := next(calls[site], None)) is not None:
            groups = scheduler.optimizer.param_groups
            for group, values in zip(groups, settings, strict=False):
                group.update({name: tuple(v) if isinstance(v, list) else v for name, v in values.items()})
            scheduler._last_lr = [group["lr"] for group in groups]
        return result

    return step


def _settings(group: dict[str, Any]) -> dict[str, Any]:
    found = {name: group[name] for name in _SET_BY_SCHEDULERS if name in group}
    return {
        name: [float(part) for part in value] if isinstance(value, (tuple, list)) else float(value)
        for name, value in found.items()
    }


def _subclasses(kind: type[Any]) -> Iterator[type[Any]]:
    subclasses: list[type[Any]] = kind.__subclasses__()
    for below in subclasses:
        yield below
        yield from _subclasses(below)
