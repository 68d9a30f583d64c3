"""Scripts that ask for a CUDA device outright, run where there is none: the CPU takes its place, in every run alike."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

_TYPES = ("Float", "Double", "Half", "BFloat16", "Long", "Int", "Short", "Char", "Byte", "Bool")


class CudaAsCpu(TorchFunctionMode):
    """While entered, every request for a CUDA device is one for the CPU."""

    def __torch_function__(
        self, function: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if function is torch.Tensor.cuda:
            return args[0]
        if function is torch.Tensor.to:
            args = (args[0], *(_cpu_for(argument) for argument in args[1:]))
        if "device" in kwargs:
            kwargs = {**kwargs, "device": _cpu_for(kwargs["device"])}
        return function(*args, **kwargs)


def install() -> None:
    """Replace CUDA by the CPU in this process, for good."""
    mode: Any = CudaAsCpu()
    mode.__enter__()
    cuda: Any = torch.cuda
    for name in _TYPES:
        setattr(cuda, f"{name}Tensor", getattr(torch, f"{name}Tensor"))
    cuda.set_device = cuda.synchronize = lambda *_, **__: None
    cuda.current_device = lambda: 0
    cuda.get_device_name = lambda *_: "CPU in place of CUDA"
    torch.load = _loads_on_cpu(torch.load)
    module: Any = torch.nn.Module
    # Without this it asks the driver for the current device before a tensor is moved.
    module.cuda = lambda self, device=None: self
    # A number is looked up among the devices before any tensor is moved.
    module.to = _moves_to_cpu(module.to)


def _cpu_for(wanted: Any) -> Any:
    if isinstance(wanted, torch.device):
        return torch.device("cpu") if wanted.type == "cuda" else wanted
    if isinstance(wanted, str) and wanted.startswith("cuda"):
        return "cpu"
    # A bare number is a CUDA device's, but for bool, which is an argument of another name.
    return "cpu" if type(wanted) is int else wanted


def _moves_to_cpu(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def to(self: Any, *args: Any, **kwargs: Any) -> Any:
        if "device" in kwargs:
            kwargs["device"] = _cpu_for(kwargs["device"])
        return function(self, *(_cpu_for(argument) for argument in args), **kwargs)

    return to


def _loads_on_cpu(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def load(f: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
        where = "cpu" if map_location is None or not callable(map_location) else map_location
        return function(f, where, *args, **kwargs)

    return load
