"""One training step in detail: weights at its start, every module's output, the loss and the gradients.

Made in a second pair of runs, once it is known at which call of backward two runs part. The rows of all ranks' outputs,
one rank after another, are the rows of the reference's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypedDict

import torch

_WRAPPERS = ("module.", "_orig_mod.")
LIMIT = 2**30
"""Bytes that are written of one step."""


class Call(TypedDict):
    """One call of a module: its name from the outermost module, its class, its output, and whether it mixes rows.

    `mixes` is None where that was not tried, which is on the reference only.
    """

    name: str
    kind: str
    output: torch.Tensor
    mixes: bool | None


class Window(TypedDict):
    """What one step showed. `ends` where an optimizer's step comes next: until then the gradients are still each
    process's part, as those of an accumulation window."""

    weights: list[torch.Tensor]
    calls: list[Call]
    loss: float
    weight: float | None
    gradients: list[tuple[str, torch.Tensor]]
    ends: bool


class Tracer:
    """Records some calls of backward and what led to each.

    Args:
        wanted: numbers of calls of backward, from 1.
        try_rows: try on each module whether a part of the rows gives that part of the output.
    """

    def __init__(self, wanted: Iterable[int], try_rows: bool) -> None:
        self.wanted = set(wanted)
        self.try_rows = try_rows
        self.windows: dict[int, Window] = {}
        self.current = 1
        self.names: dict[int, str] = {}
        self.depth = 0
        self.bytes = 0
        self.trying = False

    def install(self) -> None:
        """Record from now on."""
        torch.nn.modules.module.register_module_forward_pre_hook(self._before)
        torch.nn.modules.module.register_module_forward_hook(self._after, always_call=True)

    @property
    def recording(self) -> bool:
        """Whether the step that runs is one of those wanted."""
        return self.current in self.wanted and not self.trying and torch.is_grad_enabled()

    def window(self, parameters: Iterable[torch.Tensor] = ()) -> Window:
        """The record of the step that runs; made with the weights as they are when first asked for."""
        found = self.windows.get(self.current)
        if found is None:
            weights = [parameter.detach().cpu().clone() for parameter in parameters]
            found = self.windows[self.current] = {
                "weights": weights, "calls": [], "loss": 0.0, "weight": None, "gradients": [], "ends": False,
            }  # fmt: skip
        return found

    def before_backward(self, loss: float, weight: float | None, parameters: Iterable[torch.Tensor]) -> None:
        """Called before each backward with the loss, and what it is weighed by."""
        if self.current in self.wanted:
            window = self.window(parameters)
            window["loss"], window["weight"] = loss, weight

    def after_backward(self, parameters: Iterable[torch.Tensor]) -> None:
        """Called after each backward: the gradients as they are now, and the next step begins."""
        if self.current in self.wanted:
            self.window()["gradients"] = [
                (self.names.get(id(p), f"parameter {number}"), p.grad.detach().cpu().to_dense().clone())
                for number, p in enumerate(parameters)
                if p.grad is not None
            ]
        self.current += 1

    def before_step(self) -> None:
        """Called before each optimizer step: the last backward was the last of its accumulation window."""
        if (window := self.windows.get(self.current - 1)) is not None:
            window["ends"] = True

    def _before(self, module: torch.nn.Module, _: Any) -> None:
        if self.depth == 0 and self.recording:
            for name, parameter in module.named_parameters():
                self.names[id(parameter)] = _bare(name)
            for name, inner in module.named_modules():
                self.names.setdefault(id(inner), _bare(name))
            self.window(module.parameters())
        self.depth += 1

    def _after(self, module: torch.nn.Module, inputs: Any, output: Any) -> None:
        self.depth = max(0, self.depth - 1)
        if not self.recording or not isinstance(output, torch.Tensor) or self.bytes > LIMIT:
            return
        self.bytes += output.nbytes
        leaf = next(module.children(), None) is None
        self.window()["calls"].append(
            {
                "name": self.names.get(id(module), "") or type(module).__name__,
                "kind": type(module).__name__,
                "output": output.detach().cpu().clone(),
                "mixes": self._mixes(module, inputs, output) if self.try_rows and leaf else None,
            }
        )

    def _mixes(self, module: torch.nn.Module, inputs: tuple[Any, ...], output: torch.Tensor) -> bool | None:
        """Whether the first half of the rows alone gives another output than among all rows."""
        rows = output.shape[0] if output.dim() else 0
        tensors = [value for value in inputs if isinstance(value, torch.Tensor)]
        if (
            rows < 2
            or len(tensors) != len(inputs)
            or any(t.dim() == 0 or t.shape[0] != rows for t in tensors)
        ):
            return None
        half = rows // 2
        try:
            with self._undisturbed(module):
                part = module(*(tensor.detach()[:half] for tensor in tensors))
        except Exception:
            # A layer that does not take fewer rows is not tried.
            return None
        if not isinstance(part, torch.Tensor) or part.shape != output[:half].shape:
            return True
        return not close(output[:half].detach(), part)

    @contextmanager
    def _undisturbed(self, module: torch.nn.Module) -> Iterator[None]:
        buffers = [(buffer, buffer.clone()) for buffer in module.buffers()]
        state = torch.get_rng_state()
        self.trying = True
        try:
            with torch.no_grad():
                yield
        finally:
            self.trying = False
            torch.set_rng_state(state)
            with torch.no_grad():
                for buffer, before in buffers:
                    buffer.copy_(before)


def _bare(name: str) -> str:
    while name.startswith(_WRAPPERS):
        name = name.partition(".")[2]
    return "" if name in ("module", "_orig_mod") else name


def close(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Equal as far as the precision of the numbers allows: a thousand roundings of the largest one."""
    if not a.is_floating_point():
        return a.shape == b.shape and torch.equal(a, b)
    if a.shape != b.shape or a.numel() == 0:
        return a.shape == b.shape
    a, b = a.double(), b.to(a.device).double()
    scale = float(a.abs().max())
    unit = 1000 * torch.finfo(torch.float32).eps
    return bool(((a - b).abs() <= unit * max(scale, 1e-30)).all()) or bool(torch.equal(a, b))
