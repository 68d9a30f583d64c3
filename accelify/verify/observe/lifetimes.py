"""Objects that are alive: models, optimizers and loaders whenever another optimizer is made, at the first step after
that, and at the end.

A loop that makes them in each round lets go of those of the round before; where something holds on to them, memory
grows by a model a round. All references here are weak, and what only a cycle holds is collected first.
"""

from __future__ import annotations

import functools
import gc
import os
import sys
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.parameter import is_lazy
from torch.optim.optimizer import Optimizer, register_optimizer_step_pre_hook
from torch.utils.data import DataLoader

import accelify
from accelify.verify.observe.context import Context
from accelify.verify.observe.sites import is_library

POINTS = 40
"""Optimizers up to which each creation is looked at; beyond, the end alone."""
_WRAPPERS = ("accelify.", "accelerate.", "torch.nn.parallel", "torch.distributed", "deepspeed.")
_RUNTIMES = (os.path.join(os.path.dirname(os.path.realpath(accelify.__file__)), "runtime") + os.sep,
             f"{os.sep}accelerate{os.sep}")  # fmt: skip


class Lifetimes:
    """Counts in one process."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self._modules: weakref.WeakSet[torch.nn.Module] = weakref.WeakSet()
        self._optimizers: weakref.WeakSet[Optimizer] = weakref.WeakSet()
        self._loaders: weakref.WeakSet[DataLoader[Any]] = weakref.WeakSet()
        self._points = self._stepped = 0
        self._process = os.getpid()
        self._finished = False

    def install(self) -> None:
        """Look from now on."""
        module: Any = torch.nn.Module
        module.__init__ = self._noting(module.__init__, self._modules.add)
        # A copy and a module out of a file are made without `__init__`.
        module.__setstate__ = self._noting(module.__setstate__, self._modules.add)
        Optimizer.__init__ = self._noting(Optimizer.__init__, self._note_optimizer)  # type: ignore[method-assign]
        register_optimizer_step_pre_hook(self._note_step)
        DataLoader.__init__ = self._noting(DataLoader.__init__, self._note_loader)  # type: ignore[method-assign]

    def finish(self) -> None:
        """The last look."""
        if not self._finished and os.getpid() == self._process:
            self._finished = True
            self._look("end")

    def _noting(self, function: Callable[..., Any], note: Callable[[Any], None]) -> Callable[..., Any]:
        @functools.wraps(function)
        def noting(made: Any, *args: Any, **kwargs: Any) -> None:
            function(made, *args, **kwargs)
            if not torch.compiler.is_compiling():
                note(made)

        return noting

    def _note_optimizer(self, optimizer: Optimizer) -> None:
        # Classes derived from one another come here once for each.
        if type(optimizer).__module__.startswith(_WRAPPERS) or optimizer in self._optimizers:
            return
        self._points += 1
        first = not len(self._optimizers)
        if not first and self._points <= POINTS and not self._finished:
            self._look("optimizer")
        self._optimizers.add(optimizer)
        if first and self._points == 1:
            # Nothing that could have been let go of, so nothing to collect.
            self._look("first", collect=False)

    def _note_step(self, *_: Any) -> None:
        # Where another one takes the place of one, that one is alive until it does.
        if self._stepped < self._points <= POINTS and not self._finished:
            self._stepped = self._points
            self._look("step")

    def _note_loader(self, loader: DataLoader[Any]) -> None:
        frame = sys._getframe(2)
        while frame is not None and is_library(file := frame.f_code.co_filename):
            if any(runtime in file for runtime in _RUNTIMES):
                return
            frame = frame.f_back  # type: ignore[assignment]
        self._loaders.add(loader)

    def _look(self, at: str, collect: bool = True) -> None:
        with self.context.pause():
            if collect:
                gc.collect()
            models, size = self._models()
            counts = {"models": models, "bytes": size}
            counts |= {"optimizers": len(self._optimizers), "loaders": len(self._loaders)}
        self.context.emit_here("objects", at=at, **counts)

    def _models(self) -> tuple[int, int]:
        """Modules with parameters that are no part of another, and the bytes of all parameters."""
        alive = [m for m in self._modules if not type(m).__module__.startswith(_WRAPPERS)]
        # An object whose `__init__` has not run so far has no parts yet.
        parts = {
            id(part) for m in alive for part in m.__dict__.get("_modules", {}).values() if part is not None
        }
        roots = [m for m in alive if id(m) not in parts and "_modules" in m.__dict__]
        # A lazy layer's have no size before the first batch.
        sized = [p for m in roots for p in m.parameters() if not is_lazy(p)]
        sizes = {id(p): p.numel() * p.element_size() for p in sized}
        return sum(next(m.parameters(), None) is not None for m in roots), sum(sizes.values())


_installed: list[Lifetimes] = []


def install(context: Context) -> None:
    """Look at what is alive from now on."""
    lifetimes = Lifetimes(context)
    lifetimes.install()
    _installed.append(lifetimes)


def finish(context: Context) -> None:
    """Look again."""
    for lifetimes in _installed:
        lifetimes.finish()
