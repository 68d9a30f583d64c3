"""Helpers that scripts use around the training loop."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import torch

from . import collectives
from .files import release_memory
from .nested import find_batch_size, recursively_apply
from .plugins import ProfileKwargs
from .state import PartialState

if TYPE_CHECKING:
    from .accelerator import Accelerator

_OUT_OF_MEMORY = ("out of memory", "can't allocate memory", "not enough memory", "CUDNN_STATUS_NOT_SUPPORTED")


def ran_out_of_memory(error: BaseException) -> bool:
    """Whether an error means that there was not enough memory."""
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in _OUT_OF_MEMORY)


def find_executable_batch_size(
    function: Callable[..., Any] | None = None,
    starting_batch_size: int = 128,
    reduce_batch_size_fn: Callable[[int], int] | None = None,
) -> Any:
    """Decorator: call `function(batch_size, ...)` again with a smaller batch size whenever memory runs out, on all
    ranks as soon as it does on one.

    Args:
        function: takes the batch size as its first argument.
        starting_batch_size: the first to try.
        reduce_batch_size_fn: from one size to the next; default: nine tenths of it.

    Raises:
        RuntimeError: no size fits.
        TypeError: the function was called with an explicit batch size.
    """
    if function is None:
        return functools.partial(
            find_executable_batch_size,
            starting_batch_size=starting_batch_size,
            reduce_batch_size_fn=reduce_batch_size_fn,
        )
    next_size = reduce_batch_size_fn or (lambda size: int(size * 0.9))

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        batch_size = starting_batch_size
        names = list(inspect.signature(function).parameters)
        if len(args) >= len(names) > 0 and not any(
            p.kind is p.VAR_POSITIONAL for p in inspect.signature(function).parameters.values()
        ):
            raise TypeError(f"{function.__name__} gets its batch size by itself: call it without one")
        while batch_size > 0:
            result, error = None, None
            try:
                result = function(batch_size, *args, **kwargs)
            except Exception as caught:
                if not ran_out_of_memory(caught):
                    raise
                error = caught
            if not collectives.on_any_rank(error is not None):
                return result
            # The traceback holds the tensors that did not fit.
            del result, error
            release_memory()
            batch_size = next_size(batch_size)
        raise RuntimeError(f"no batch size from {starting_batch_size} down fits into memory")

    return run


class LocalSGD:
    """Ranks train independently and average the model's weights after a fixed number of steps.

    Args:
        accelerator: the Accelerator.
        model: a prepared model.
        local_sgd_steps: steps between two averages.
        enabled: False: an ordinary run.

    Raises:
        ValueError: fewer than one step.
    """

    def __init__(
        self, accelerator: Accelerator, model: torch.nn.Module, local_sgd_steps: int, enabled: bool = True
    ) -> None:
        if local_sgd_steps < 1:
            raise ValueError(f"local_sgd_steps must be at least 1, not {local_sgd_steps}")
        self.accelerator = accelerator
        self.model = model
        self.local_sgd_steps = local_sgd_steps
        self.enabled = enabled and accelerator.num_processes > 1
        if self.enabled:
            accelerator.backend.check_trains_alone("LocalSGD")
        self.num_steps = 0
        self._region: contextlib.AbstractContextManager[Any] | None = None

    def __enter__(self) -> LocalSGD:
        if self.enabled:
            self._region = self.accelerator.no_sync(self.model)
            self._region.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._region is not None:
            self._region.__exit__(kind, error, trace)
            if kind is None:
                self._average()

    def step(self) -> None:
        """To be called after every optimizer step."""
        self.num_steps += 1
        if self.enabled and self.num_steps % self.local_sgd_steps == 0:
            self._average()

    def _average(self) -> None:
        self.accelerator.wait_for_everyone()
        for parameter in self.model.parameters():
            parameter.data.copy_(collectives.reduce(parameter.data, "mean"))


def pad_input_tensors(tensor: Any, batch_size: int, num_processes: int, dim: int = 0) -> Any:
    """Repeat the last samples so that a batch divides evenly between processes.

    Args:
        tensor: a tensor or a nested container of them.
        batch_size: of the whole batch.
        num_processes: how many share it.
        dim: dimension of the samples.
    """
    size = find_batch_size(tensor)
    missing = -(size or 0) % num_processes
    if not missing:
        return tensor

    def pad(t: torch.Tensor) -> torch.Tensor:
        if t.ndim == 0 or t.shape[dim] != size:
            return t
        last = t.narrow(dim, t.shape[dim] - 1, 1)
        return torch.cat(
            [t, last.expand(*[missing if d == dim % t.ndim else n for d, n in enumerate(t.shape)])], dim
        )

    return recursively_apply(pad, tensor)


@contextlib.contextmanager
def profiled(handler: ProfileKwargs) -> Iterator[Any]:
    """A `torch.profiler.profile`; with `output_trace_dir`, every process leaves a Chrome trace there."""
    kinds = {
        "cpu": torch.profiler.ProfilerActivity.CPU,
        "cuda": torch.profiler.ProfilerActivity.CUDA,
        "xpu": torch.profiler.ProfilerActivity.XPU,
    }
    for name in handler.activities or []:
        if name not in kinds:
            raise ValueError(f"activities of the profiler are {', '.join(kinds)}, not {name!r}")
    schedule = torch.profiler.schedule(**handler.schedule_option) if handler.schedule_option else None
    with torch.profiler.profile(
        activities=[kinds[a] for a in handler.activities] if handler.activities else None,
        schedule=schedule,
        on_trace_ready=handler.on_trace_ready,
        record_shapes=handler.record_shapes,
        profile_memory=handler.profile_memory,
        with_stack=handler.with_stack,
        with_flops=handler.with_flops,
        with_modules=handler.with_modules,
    ) as profiler:
        yield profiler
    if handler.output_trace_dir is not None:
        process = PartialState()
        directory = Path(handler.output_trace_dir)
        directory.mkdir(parents=True, exist_ok=True)
        profiler.export_chrome_trace(str(directory / f"profile_{process.process_index}.json"))
        process.wait_for_everyone()
