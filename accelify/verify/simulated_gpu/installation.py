"""Put the simulated GPU in place: `torch.cuda` answers as with one device, files remember where a tensor was."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.serialization

from accelify.verify.simulated_gpu.calls import Calls
from accelify.verify.simulated_gpu.kernels import Frames, Kernels
from accelify.verify.simulated_gpu.labels import CPU, DTYPES, GPU, LABEL, as_device, moved
from accelify.verify.simulated_gpu.types import legacy

_ORDERS = (
    "_lazy_init",
    "init",
    "set_device",
    "synchronize",
    "empty_cache",
    "manual_seed",
    "manual_seed_all",
    "seed",
    "seed_all",
    "reset_peak_memory_stats",
    "set_rng_state",
    "set_rng_state_all",
)


def _always(answer: Any) -> Callable[..., Any]:
    """A new function that returns an answer: the compiler wants no function under two names."""
    return lambda *_, **__: answer


def _install_cuda() -> None:
    """Let `torch.cuda` say that there is one device."""
    cuda: Any = torch.cuda
    answers: dict[str, Any] = {
        "is_available": True,
        "is_initialized": True,
        "device_count": 1,
        "current_device": 0,
        "get_device_name": "a simulated GPU",
        "get_device_capability": (9, 0),
        "memory_allocated": 0,
        "max_memory_allocated": 0,
        "memory_reserved": 0,
        "max_memory_reserved": 0,
        "is_bf16_supported": True,
        "mem_get_info": (1 << 34, 1 << 34),
        "get_device_properties": types.SimpleNamespace(
            name="a simulated GPU", total_memory=1 << 34, multi_processor_count=1, major=9, minor=0
        ),
    }
    for name, answer in answers.items():
        setattr(cuda, name, _always(answer))
    for name in _ORDERS:
        setattr(cuda, name, _always(None))
    with torch._C.DisableTorchFunction():
        cuda.get_rng_state = lambda *_: torch.zeros(16, dtype=torch.uint8)
        cuda.get_rng_state_all = lambda: [torch.zeros(16, dtype=torch.uint8)]
    accelerator: Any = torch.accelerator
    accelerator.is_available, accelerator.device_count = _always(True), _always(1)
    accelerator.current_accelerator = _always(torch.device("cuda"))
    accelerator.current_device_index = _always(0)
    accelerator.current_stream = _always(types.SimpleNamespace(is_capturing=lambda: False))
    for name in DTYPES:
        setattr(cuda, f"{name}Tensor", legacy(name, GPU))
        setattr(torch, f"{name}Tensor", legacy(name, CPU))


def _install_parallel() -> None:
    """DataParallel over the one device, and loaders that pin nothing."""
    comm: Any = torch.nn.parallel.comm
    comm.scatter = lambda tensor, *_, **__: (moved(tensor, GPU),)
    loader: Any = torch.utils.data.DataLoader
    make = loader.__init__

    @functools.wraps(make)
    def unpinned(self: Any, *args: Any, **kwargs: Any) -> None:
        kwargs.pop("pin_memory", None)
        make(self, *args, **kwargs)

    loader.__init__ = unpinned
    module: Any = torch.nn.Module
    move = module.to

    @functools.wraps(move)
    def to(self: Any, *args: Any, **kwargs: Any) -> Any:
        # A bare number is a device of the machine's accelerator, and this machine has none.
        return move(self, *(as_device(a) if type(a) is int else a for a in args), **kwargs)

    module.to = to


def _install_files() -> None:
    """Files remember the device of what was saved, and bring it back there without a `map_location`."""

    def tag(storage: Any) -> str | None:
        return "cuda:0" if getattr(storage, LABEL, CPU) == GPU else None

    def restore(storage: Any, location: str) -> Any:
        if not location.startswith("cuda"):
            return None
        setattr(getattr(storage, "_untyped_storage", storage), LABEL, GPU)
        return storage

    torch.serialization.register_package(0, tag, restore)


def install() -> Kernels:
    """Simulate a GPU in this process, for good; what runs on it is counted in what comes back."""
    _install_cuda()
    _install_parallel()
    _install_files()
    frames = Frames()
    kernels = Kernels(frames)
    modes: Iterable[Any] = (kernels, Calls(frames))
    for mode in modes:
        mode.__enter__()
    return kernels
