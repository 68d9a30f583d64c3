"""A GPU for machines that have none: `python tests/gpu/simulated_gpu.py SCRIPT ARGUMENTS` runs a script as if on one.

Every tensor stays in the CPU's memory and is computed there; what is simulated is where it would be. The storage of
a tensor carries a label, new tensors get the label of those they are computed from, and what torch refuses on a GPU
is refused with torch's sentences: operations over tensors of both devices, `numpy()` of a device's tensor, lengths of
packed sequences that are not on the CPU, indices on the device of what is not.

Not simulated: streams, several devices, half precision by autocast, compiled graphs, kernels that CUDA does not have.
"""

from __future__ import annotations

import functools
import importlib
import os
import runpy
import sys
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
import torch.serialization
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)
_LABEL = "simulated_device"
_DTYPES = {
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
_HOST_TYPES = {name: getattr(torch, f"{name}Tensor") for name in _DTYPES}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}

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

# May read both devices' tensors: they copy, or are handed lengths that stay on the CPU.
_FREE = (
    "copy_",
    "_to_copy",
    "_copy_from",
    "_foreach_copy_",
    "_local_scalar_dense",
    "set_",
    "_foreach_norm",
)


def device_of(tensor: torch.Tensor) -> torch.device:
    """Where a tensor would be."""
    with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch():
        part = tensor
        while part.layout is torch.sparse_coo:
            part = part._values()
        if part.device.type != "cpu":
            return part.device
        found: torch.device = getattr(part.untyped_storage(), _LABEL, CPU)
        return found


def label(tensor: torch.Tensor, device: torch.device) -> None:
    """Say where a tensor is."""
    with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch():
        if tensor.layout is torch.sparse_coo:
            label(tensor._indices(), device)
            label(tensor._values(), device)
        elif tensor.device.type == "cpu":
            setattr(tensor.untyped_storage(), _LABEL, device)


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from _tensors(part)
    elif isinstance(value, dict):
        for part in value.values():
            yield from _tensors(part)


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


def _mixed(function: Any) -> RuntimeError:
    return RuntimeError(
        f"Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu! ({function})"
    )


class _Frames:
    """The torch functions that are being called from Python, innermost last: where each one's tensors are."""

    def __init__(self) -> None:
        self.devices: list[torch.device] = []


class Kernels(TorchDispatchMode):
    """What runs below autograd: checks where its tensors are, and labels what comes out."""

    def __init__(self, frames: _Frames) -> None:
        super().__init__()
        self.frames = frames
        self.count = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # or the compiler is imported, which takes seconds and looks at what stands in for torch.cuda

    def __torch_dispatch__(self, function: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        wanted = as_device(kwargs["device"]) if kwargs.get("device") is not None else None
        if wanted is not None:
            kwargs["device"] = CPU if wanted == GPU else wanted
        name = function._schema.name.removeprefix("aten::")
        given = [*_tensors(args), *_tensors(kwargs)]
        where = self.device(name, function, args, kwargs, given)
        if wanted == GPU:
            where = GPU
        result = function(*args, **kwargs)
        if where == GPU:
            self.count += 1
            own = {t.untyped_storage()._cdata for t in given if t.layout is torch.strided}
            for number, tensor in enumerate(_tensors(result)):
                if name == "_pack_padded_sequence" and number == 1:
                    continue  # how many sequences are left at each step: on the CPU
                if tensor.layout is not torch.strided or tensor.untyped_storage()._cdata not in own:
                    label(tensor, GPU)
        return result

    def device(
        self, name: str, function: Any, args: Any, kwargs: Any, given: list[torch.Tensor]
    ) -> torch.device:
        """The device that a kernel runs on.

        Raises:
            RuntimeError: its tensors are on two.
        """
        if name in (
            "index",
            "index_put",
            "index_put_",
            "_index_put_impl_",
            "_unsafe_index",
            "_unsafe_index_put",
        ):
            return self._indexed(function, args)
        if name == "_pack_padded_sequence":
            if device_of(args[1]) != CPU:
                raise RuntimeError(
                    "'lengths' argument should be a 1D CPU int64 tensor, but got 1D cuda:0 Long tensor"
                )
            return device_of(args[0])
        places = [device_of(t) for t in given]
        if not given:
            return self.frames.devices[-1] if self.frames.devices else CPU
        if GPU not in places:
            return CPU
        if name.split(".")[0] in _FREE:
            return places[0]
        if name.startswith(("_foreach", "_amp_foreach")):
            for row in zip(*[a for a in args if isinstance(a, (list, tuple)) and a], strict=False):
                self._same(function, [t for t in row if isinstance(t, torch.Tensor)])
            return places[0]
        self._same(function, given)
        if function._schema.is_mutable and places[0] == CPU:
            raise _mixed(function)
        return GPU

    def _same(self, function: Any, given: list[torch.Tensor]) -> None:
        places = [device_of(t) for t in given]
        if GPU in places and any(p == CPU and t.dim() for p, t in zip(places, given, strict=True)):
            raise _mixed(function)

    def _indexed(self, function: Any, args: Any) -> torch.device:
        own = device_of(args[0])
        indices = [t for t in args[1] if t is not None]
        if own == CPU and any(device_of(t) != CPU for t in indices):
            raise RuntimeError(
                "indices should be either on cpu or on the same device as the indexed tensor (cpu)"
            )
        if len(args) > 2 and isinstance(args[2], torch.Tensor):
            if device_of(args[2]) != own and (own == CPU or args[2].dim()):
                raise _mixed(function)
        return own


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
        found: torch.Tensor = _Move.apply(tensor, device)
        return found
    return _copied(tensor, device)


class Calls(TorchFunctionMode):
    """What scripts say to torch: devices they name, and where they ask a tensor is."""

    def __init__(self, frames: _Frames) -> None:
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
        """Call a function; its new tensors are on `wanted`, or where those are that it was given."""
        given = [device_of(t) for t in (*_tensors(args), *_tensors(kwargs))]
        self.frames.devices.append(wanted or (GPU if GPU in given else CPU))
        try:
            result = function(*args, **kwargs)
        finally:
            self.frames.devices.pop()
        if wanted is not None:
            for tensor in _tensors(result):
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
    device, other = as_device(kwargs.pop("device", None)), kwargs.pop("other", None)
    if rest and isinstance(rest[0], torch.Tensor):
        other, *rest = rest
    elif rest and not isinstance(rest[0], torch.dtype):
        device, rest = as_device(rest[0]), rest[1:]
        rest = rest if rest and isinstance(rest[0], torch.dtype) else [tensor.dtype, *rest[1:]]
    if other is not None:
        device, rest = device_of(other), [other.dtype, *rest]
    before = device_of(tensor)
    result = mode.run(function, (tensor, *rest), kwargs) if rest or kwargs else tensor
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
        return f"{room}{_NAMES[tensor.dtype]}Tensor"
    if isinstance(wanted, str):
        dtype = _DTYPES[wanted.rsplit(".", 1)[-1].removesuffix("Tensor")]
        return moved(tensor.to(dtype), GPU if ".cuda." in wanted else CPU)
    if isinstance(wanted, _LegacyType):
        return moved(tensor.to(wanted.dtype), wanted.device)
    return mode.run(function, args, kwargs)


def _type_as(mode: Calls, function: Any, args: Any, kwargs: Any) -> Any:
    return moved(args[0].to(args[1].dtype), device_of(args[1]))


def _like_first(mode: Calls, function: Any, args: Any, kwargs: Any) -> Any:
    """What keeps the device of its tensor whatever torch's kernels are told: `new`, a deep copy, a pickled one."""
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
            f"cannot pin 'torch.cuda.{_NAMES[args[0].dtype]}Tensor' only dense CPU tensors can be pinned"
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
    torch._VF._pad_packed_sequence: _padded,  # type: ignore[attr-defined]
    torch.tensor: _of_data,
    torch.as_tensor: _of_data,
}


class _LegacyType(type):
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


def _legacy(name: str, device: torch.device) -> Any:
    room = "torch.cuda" if device == GPU else "torch"
    made = _LegacyType(f"{name}Tensor", (), {"__module__": room})
    made.dtype, made.device, made.host = _DTYPES[name], device, _HOST_TYPES[name]
    return made


def _always(answer: Any) -> Callable[..., Any]:
    """A function of its own that gives an answer: the compiler wants no function under two names."""
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
    for name in _DTYPES:
        setattr(cuda, f"{name}Tensor", _legacy(name, GPU))
        setattr(torch, f"{name}Tensor", _legacy(name, CPU))


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
    """Files remember the device of what was saved, and bring it back there unless told otherwise."""

    def tag(storage: Any) -> str | None:
        return "cuda:0" if getattr(storage, _LABEL, CPU) == GPU else None

    def restore(storage: Any, location: str) -> Any:
        if not location.startswith("cuda"):
            return None
        setattr(getattr(storage, "_untyped_storage", storage), _LABEL, GPU)
        return storage

    torch.serialization.register_package(0, tag, restore)


def install() -> Kernels:
    """Simulate a GPU in this process, for good; what runs on it is counted in what comes back."""
    _install_cuda()
    _install_parallel()
    _install_files()
    frames = _Frames()
    kernels = Kernels(frames)
    modes: Iterable[Any] = (kernels, Calls(frames))
    for mode in modes:
        mode.__enter__()
    return kernels


def run(script: str) -> None:
    """Run a script in this process, in its folder, and say on standard error how much of it ran on the GPU."""
    kernels = install()
    sys.argv = [os.path.abspath(script), *sys.argv[2:]]
    sys.path.insert(0, os.path.dirname(sys.argv[0]))
    os.chdir(sys.path[0])
    runpy.run_path(sys.argv[0], run_name="__main__")
    print(f"kernels on the simulated GPU: {kernels.count}", file=sys.stderr)


def run_each(scripts: list[str]) -> None:
    """Run scripts one after another, each in a process of its own that has torch already.

    One line for each: its exit status and its path. What it says goes to `SCRIPT.log`.
    """
    for name in ("torch._dynamo", "accelify.runtime"):
        importlib.import_module(name)  # what every one of them would read anew
    for script in scripts:
        child = os.fork()
        if not child:
            log = os.open(f"{script}.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(log, 1)
            os.dup2(log, 2)
            sys.argv = ["", script]
            run(script)
            return
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), script, flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "--each":
        run_each(sys.argv[2:])
    else:
        run(sys.argv[1])
