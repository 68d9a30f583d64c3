"""Models that begin on the meta device: made real module by module, initialised, or filled from the main process."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import torch
from torch import nn

from ..collectives import all_gather_objects, broadcast_tensors
from .agreeing_names import agree_on_names


def has_meta(module: nn.Module) -> bool:
    """Whether any parameter or buffer has no memory yet."""
    return any(t.is_meta for t in (*module.parameters(), *module.buffers()))


class Materialiser:
    """Gives the modules of one model real and equal weights, one after another, so that each can be sharded at once.

    Where the main process has weights, the others get them. Where it has none either, every module is initialised by
    its `reset_parameters`, children first, then by the model's `_init_weights(module)` where it has one: the
    numbers that building it on the CPU draws, as long as the script changes none of them afterwards.

    Args:
        model: the script's, on every rank.
        share: begin with the main process's weights where all have some; False: they are equal already.
    """

    def __init__(self, model: nn.Module, share: bool = True) -> None:
        self.model = model
        self._made: dict[int, torch.Tensor] = {}
        self._keep: list[torch.Tensor] = []
        agree_on_names(model)
        without = all_gather_objects(has_meta(model))
        self.is_needed = any(without)
        self._initialise = bool(without[0])
        if not self.is_needed and share:
            broadcast_tensors([t.data for t in (*model.parameters(), *model.buffers())])

    def visit(self, finish: Callable[[nn.Module], None] | None = None) -> None:
        """Make every module real, children first, and call `finish` on it.

        Raises:
            ValueError: a module that cannot be initialised.
        """
        whole = getattr(type(self.model), "init_weights", None)
        if self.is_needed and self._initialise and callable(whole) and _takes(self.model.init_weights, 0):
            # It writes to all modules at once.
            for module in self.model.modules():
                self._allocate(module)
            self.model.init_weights()  # type: ignore[operator]
            broadcast_tensors([t.data for t in (*self.model.parameters(), *self.model.buffers())])
            self.is_needed = False
        seen: set[int] = set()

        def walk(module: nn.Module) -> None:
            if id(module) in seen:
                return
            seen.add(id(module))
            for child in list(module.children()):
                walk(child)
            if self.is_needed:
                self._make(module)
            if finish is not None:
                finish(module)

        walk(self.model)

    def _make(self, module: nn.Module) -> None:
        tied = {n: t for n, p in module._parameters.items() if (t := self._made.get(id(p))) is not None}
        own = [*self._allocate(module), *tied]
        if self._initialise and own:
            values = [t.detach().clone() for t in tied.values()]
            reset = getattr(module, "reset_parameters", None) or getattr(module, "_reset_parameters", None)
            further = getattr(self.model, "_init_weights", None)
            if reset is not None:
                reset()
            if callable(further) and _takes(further, 1):
                further(module)
            elif reset is None:
                raise ValueError(
                    f"{type(module).__name__} begins on the meta device and has no reset_parameters() that would "
                    f"initialise its {', '.join(own)}: give it one, or build the model on the CPU on the main process"
                )
            # A layer that was tied to an earlier one drew weights too, which went away then.
            for tensor, value in zip(tied.values(), values, strict=True):
                tensor.data.copy_(value)
        tensors = [t.data for t in (*module._parameters.values(), *module._buffers.values()) if t is not None]
        # A child that is sharded already has none of these.
        broadcast_tensors([t for t in tensors if type(t) is torch.Tensor])

    def _allocate(self, module: nn.Module) -> list[str]:
        """Memory for a module's direct tensors; the names of those that had none."""
        names = []
        for name, parameter in list(module._parameters.items()):
            if parameter is not None and parameter.is_meta:
                real = self._made.get(id(parameter))
                if real is None:
                    real = nn.Parameter(
                        torch.empty_like(parameter, device="cpu"), requires_grad=parameter.requires_grad
                    )
                    self._made[id(parameter)] = real
                    self._keep.append(parameter)
                    names.append(name)
                setattr(module, name, real)
        for name, buffer in list(module._buffers.items()):
            if buffer is not None and buffer.is_meta:
                module._buffers[name] = torch.empty_like(buffer, device="cpu")
                names.append(name)
        return names


def _takes(function: object, arguments: int) -> bool:
    """Whether a function can be called with so many positional arguments."""
    try:
        inspect.signature(function).bind(*([None] * arguments))  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return False
    return True
