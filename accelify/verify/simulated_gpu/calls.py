"""What scripts say to torch: the devices that they name, and where they ask a tensor is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from accelify.verify.simulated_gpu.kernels import Frames
from accelify.verify.simulated_gpu.labels import (
    CPU,
    DTYPES,
    GPU,
    as_device,
    device_of,
    label,
    moved,
    tensors_in,
)
from accelify.verify.simulated_gpu.types import NAMES, LegacyType


class Calls(TorchFunctionMode):
    """What scripts say to torch: devices they name, and where they ask a tensor is."""

    def __init__(self, frames: Frames) -> None:
        super().__init__()
        self.frames = frames

    def __torch_function__(self, function: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        special = _SPECIAL.get(function)
        if special is not None:
            return special(self, function, args, kwargs)
        wanted = None
        if "device" in kwargs:
            wanted = as_device(kwargs["device"])
            kwargs["device"] = CPU if wanted is not None else kwargs["device"]
        return self.run(function, args, kwargs, wanted)

    def run(self, function: Any, args: Any, kwargs: Any, wanted: torch.device | None = None) -> Any:
        """Call a function; its new tensors are on `wanted`, or on the device of its arguments."""
        given = [device_of(t) for t in (*tensors_in(args), *tensors_in(kwargs))]
        self.frames.devices.append(wanted or (GPU if GPU in given else CPU))
        try:
            result = function(*args, **kwargs)
        finally:
            self.frames.devices.pop()
        if wanted is not None:
            for tensor in tensors_in(result):
                label(tensor, wanted)
        return result


def _device(mode: Calls, function: Any, args: Any, kwargs: Any) -> Any:
    return device_of(args[0])


def _is_cuda(mode: Calls, function: Any, args: Any, kwargs: Any) -> bool:
    return device_of(args[0]) == GPU


def _get_device(mode: Calls, function: Any, args: Any, kwargs: Any) -> int:
    return 0 if device_of(args[0]) == GPU else -1


def _to_gpu(mode: Calls, function: Any, args: Any, kwargs: Any) -> Any:
    device = args[1] if len(args) > 1 else kwargs.get("device")
    return moved(args[0], as_device(device) or GPU)


def _to_cpu(mode: Calls, function: Any, args: Any, kwargs: Any) -> Any:
    return moved(args[0], CPU)


def _to(mode: Calls, function: Any, args: Any, kwargs: Any) -> Any:
    tensor, *rest = args
    device, dtype = as_device(kwargs.pop("device", None)), kwargs.pop("dtype", None)
    other = kwargs.pop("other", None)
    if rest and isinstance(rest[0], torch.Tensor):
        other, *rest = rest
    elif rest and not isinstance(rest[0], torch.dtype):
        device, rest = as_device(rest[0]), rest[1:]
    if rest and (rest[0] is None or isinstance(rest[0], torch.dtype)):
        dtype, *rest = rest
    if other is not None:
        device, dtype = device_of(other), other.dtype
    before = device_of(tensor)
    result = mode.run(function, (tensor, dtype or tensor.dtype, *rest), kwargs)
    if result is not tensor:
        label(result, before)
    return result if device is None else moved(result, device)


def _of_data(mode: Calls, function: Any, args: Any, kwargs: Any) -> Any:
    """`torch.tensor(data)`: on the CPU, also where data is a list of the GPU's scalars."""
    wanted = as_device(kwargs.pop("device", None))
    data = args[0] if args else kwargs.get("data")
    if wanted is None:
        wanted = device_of(data) if isinstance(data, torch.Tensor) else CPU
    if isinstance(data, torch.Tensor) and function is torch.as_tensor:
        return moved(mode.run(function, args, kwargs), wanted)
    with torch._C._DisableTorchDispatch():
        result = function(*args, **kwargs)
    label(result, wanted)
    return result


def _numpy(mode: Calls, function: Any, args: Any, kwargs: Any) -> Any:
    if device_of(args[0]) == GPU and not kwargs.get("force"):
        raise TypeError(
            "can't convert cuda:0 device type tensor to numpy. "
            "Use Tensor.cpu() to copy the tensor to host memory first."
        )
    return function(*args, **kwargs)


def _type(mode: Calls, function: Any, args: Any, kwargs: Any) -> Any:
    wanted = args[1] if len(args) > 1 else kwargs.get("dtype")
    tensor = args[0]
    if wanted is None:
        room = "torch.cuda." if device_of(tensor) == GPU else "torch."
        return f"{room}{NAMES[tensor.dtype]}Tensor"
    if isinstance(wanted, str):
        dtype = DTYPES[wanted.rsplit(".", 1)[-1].removesuffix("Tensor")]
        return moved(tensor.to(dtype), GPU if ".cuda." in wanted else CPU)
    if isinstance(wanted, LegacyType):
        return moved(tensor.to(wanted.dtype), wanted.device)
    return mode.run(function, args, kwargs)


def _type_as(mode: Calls, function: Any, args: Any, kwargs: Any) -> Any:
    return moved(args[0].to(args[1].dtype), device_of(args[1]))


def _like_first(mode: Calls, function: Any, args: Any, kwargs: Any) -> Any:
    """What keeps the device of its tensor whatever device torch's kernels get: `new`, a deep copy, a pickled one."""
    return mode.run(function, args, kwargs, device_of(args[0]))


def _backward(mode: Calls, function: Any, args: Any, kwargs: Any) -> Any:
    tensor, *rest = args
    kwargs["grad_tensors"] = kwargs.pop("gradient", None)
    mode.frames.devices.append(device_of(tensor))
    try:
        # The mode stays on, for what hooks and autograd functions ask.
        with mode:
            names = ("grad_tensors", "retain_graph", "create_graph")
            torch.autograd.backward(tensor, **{**kwargs, **dict(zip(names, rest, strict=False))})
    finally:
        mode.frames.devices.pop()


def _padded(mode: Calls, function: Any, args: Any, kwargs: Any) -> Any:
    padded, lengths = mode.run(function, args, kwargs)
    label(lengths, CPU)
    return padded, lengths


def _pinned(mode: Calls, function: Any, args: Any, kwargs: Any) -> Any:
    if device_of(args[0]) == GPU:
        raise RuntimeError(
            f"cannot pin 'torch.cuda.{NAMES[args[0].dtype]}Tensor' only dense CPU tensors can be pinned"
        )
    return args[0]


_T: Any = torch.Tensor
_SPECIAL: dict[Any, Callable[[Calls, Any, Any, Any], Any]] = {
    _T.device.__get__: _device,
    _T.is_cuda.__get__: _is_cuda,
    _T.get_device: _get_device,
    _T.cuda: _to_gpu,
    _T.cpu: _to_cpu,
    _T.to: _to,
    _T.numpy: _numpy,
    _T.__array__: _numpy,
    _T.type: _type,
    _T.type_as: _type_as,
    _T.new: _like_first,
    _T.__deepcopy__: _like_first,
    _T.pin_memory: _pinned,
    _T.backward: _backward,
    torch._VF._pad_packed_sequence: _padded,
    torch.tensor: _of_data,
    torch.as_tensor: _of_data,
}
