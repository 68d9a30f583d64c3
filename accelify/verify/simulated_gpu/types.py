"""`torch.FloatTensor`, `torch.cuda.FloatTensor` and the like."""

from __future__ import annotations

from typing import Any

import torch

from accelify.verify.simulated_gpu.labels import DTYPES, GPU, device_of, label

HOST_TYPES = {name: getattr(torch, f"{name}Tensor") for name in DTYPES}
NAMES = {dtype: name for name, dtype in DTYPES.items()}


class LegacyType(type):
    """`torch.FloatTensor` and `torch.cuda.FloatTensor`: made there, and asked for with `isinstance`."""

    dtype: torch.dtype
    device: torch.device
    host: Any

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        for one in args:
            if isinstance(one, torch.Tensor) and device_of(one) != cls.device:
                raise TypeError("expected a tensor of this type's device")
        result = cls.host(*args, **kwargs)
        if not any(isinstance(one, torch.Tensor) for one in args):
            label(result, cls.device)
        return result

    def __instancecheck__(cls, one: Any) -> bool:
        return isinstance(one, torch.Tensor) and one.dtype is cls.dtype and device_of(one) == cls.device


def legacy(name: str, device: torch.device) -> Any:
    room = "torch.cuda" if device == GPU else "torch"
    made = LegacyType(f"{name}Tensor", (), {"__module__": room})
    made.dtype, made.device, made.host = DTYPES[name], device, HOST_TYPES[name]
    return made
