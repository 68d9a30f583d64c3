"""The simulated device of a tensor, stored as a label on its storage, and copies from one device to the other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)
LABEL = "simulated_device"
DTYPES = {
    "Float": torch.float32,
    "Double": torch.float64,
    "Half": torch.float16,
    "BFloat16": torch.bfloat16,
    "Long": torch.int64,
    "Int": torch.int32,
    "Short": torch.int16,
    "Char": torch.int8,
    "Byte": torch.uint8,
    "Bool": torch.bool,
}


def device_of(tensor: torch.Tensor) -> torch.device:
    """Where a tensor would be."""
    with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch():
        part = tensor
        while part.layout is torch.sparse_coo:
            part = part._values()
        if part.device.type != "cpu":
            return part.device
        found: torch.device = getattr(part.untyped_storage(), LABEL, CPU)
        return found


def label(tensor: torch.Tensor, device: torch.device) -> None:
    """Say where a tensor is."""
    with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch():
        if tensor.layout is torch.sparse_coo:
            label(tensor._indices(), device)
            label(tensor._values(), device)
        elif tensor.device.type == "cpu":
            setattr(tensor.untyped_storage(), LABEL, device)


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from tensors_in(part)
    elif isinstance(value, dict):
        for part in value.values():
            yield from tensors_in(part)


def as_device(value: Any) -> torch.device | None:
    """A device argument as a device; None where it is none."""
    if isinstance(value, torch.device):
        device = value
    elif isinstance(value, str) and value.split(":")[0] in ("cuda", "cpu"):
        device = torch.device(value)
    elif type(value) is int:
        device = torch.device("cuda", value)
    else:
        return None
    if device.type == "cuda" and device.index:
        raise RuntimeError("CUDA error: invalid device ordinal")
    return GPU if device.type == "cuda" else device


class _Move(torch.autograd.Function):
    """A copy on the other device, whose gradient comes back."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
        ctx.source = device_of(tensor)
        return _copied(tensor, device)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return _copied(gradient, ctx.source), None


def _copied(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    # Below the modes: a kernel of theirs would label the copy by its source.
    with torch._C._DisableTorchDispatch():
        copy = tensor.detach().clone()
    label(copy, device)
    return copy


def moved(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """A tensor on a device: itself where it is there."""
    if device_of(tensor) == device:
        return tensor
    if tensor.requires_grad and torch.is_grad_enabled():
        found: torch.Tensor = _Move.apply(tensor, device)  # type: ignore[no-untyped-call]
        return found
    return _copied(tensor, device)
