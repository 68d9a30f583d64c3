"""What runs below autograd: each operation's tensors have to be on one device, and its results are labelled with it."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from accelify.verify.simulated_gpu.labels import CPU, GPU, as_device, device_of, label, tensors_in

# May read both devices' tensors: they copy, or take lengths that stay on the CPU.
_FREE = (
    "copy_",
    "_to_copy",
    "_copy_from",
    "_foreach_copy_",
    "_local_scalar_dense",
    "set_",
    "_foreach_norm",
)


def _mixed(function: Any) -> RuntimeError:
    return RuntimeError(
        f"Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu! ({function})"
    )


class Frames:
    """The torch functions that are being called from Python, innermost last: where each one's tensors are."""

    def __init__(self) -> None:
        self.devices: list[torch.device] = []


class Kernels(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """What runs below autograd: checks where its tensors are, and labels what comes out."""

    def __init__(self, frames: Frames) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.frames = frames
        self.count = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # or the compiler is imported, which takes seconds and looks at what replaces torch.cuda

    def __torch_dispatch__(self, function: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        wanted = as_device(kwargs["device"]) if kwargs.get("device") is not None else None
        if wanted is not None:
            kwargs["device"] = CPU if wanted == GPU else wanted
        name = function._schema.name.removeprefix("aten::")
        given = [*tensors_in(args), *tensors_in(kwargs)]
        where = self.device(name, function, args, kwargs, given)
        if wanted == GPU:
            where = GPU
        result = function(*args, **kwargs)
        if where == GPU:
            self.count += 1
            own = {t.untyped_storage()._cdata for t in given if t.layout is torch.strided}
            for number, tensor in enumerate(tensors_in(result)):
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
