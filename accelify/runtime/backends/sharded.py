"""What the engines share whose parameters are divided between ranks (DTensors): optimizers, clipping, states, files."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor

from .. import guard
from ..nested import leaves, map_leaves
from ..precision import Precision
from ..state import PartialState
from .averaging import ParameterSet, share_tensors
from .dtensors import by_mesh, divided_like, from_local_like, local, total_norm, whole
from .sharded_model import Sharding, sharding_of
from .wrapped import AveragingBackend


class ShardedBackend(AveragingBackend):
    """Base of the engines that divide parameters. A subclass wraps, and reports what it cannot do."""

    # As users know the engine.
    stated = "this engine"
    reads_shards = True

    def __init__(self, process: PartialState, precision: Precision, options: dict[str, Any]) -> None:
        super().__init__(process, precision, options)
        self._models: list[weakref.ref[nn.Module]] = []
        # Models without a trained parameter, whose statistics (batch norm) may go on from the batches of each rank.
        self._frozen: list[weakref.ref[nn.Module]] = []
        # Parameters that were divided: the script's, weakly, by identity, and what replaces them now.
        self._replaced: dict[int, tuple[weakref.ref[torch.Tensor], nn.Parameter]] = {}
        self._loose = ParameterSet([], "parameters of no model")

    def models(self) -> list[tuple[nn.Module, Sharding]]:
        """The wrapped models still in use, in order of wrapping."""
        found = [(r, m) for r in self._models if (m := r()) is not None]
        self._models = [r for r, _ in found]
        return [(m, s) for _, m in found if (s := sharding_of(m)) is not None]

    def refuse(self, operation: str, instead: str) -> NotImplementedError:
        """The error for an operation that does not go with divided parameters."""
        return NotImplementedError(f"{operation} does not work with {self.stated}: {instead}")

    # Parameters that were replaced

    @contextlib.contextmanager
    def _replacing(self, model: nn.Module) -> Iterator[None]:
        """Note which parameter represents which after the block."""
        before = {n: (id(p), weakref.ref(p)) for n, p in model.named_parameters(remove_duplicate=False)}
        yield
        for name, parameter in model.named_parameters(remove_duplicate=False):
            old, reference = before[name]
            if reference() is not parameter:
                self._replaced[old] = (reference, parameter)  # type: ignore[assignment]

    def _now(self, parameter: torch.Tensor) -> torch.Tensor:
        entry = self._replaced.get(id(parameter))
        return entry[1] if entry is not None and entry[0]() is parameter else parameter

    def settle(self) -> None:
        """Let models show their divided parameters, not ones gathered for a forward whose backward never came."""

    def adopt(self, optimizer: torch.optim.Optimizer) -> None:
        if isinstance(optimizer, torch.optim.LBFGS):
            raise self.refuse("LBFGS", "its step puts all parameters end to end; use Adam, say")
        self.settle()
        for group in optimizer.param_groups:
            for i, old in enumerate(group["params"]):
                new = self._now(old)
                if new is old:
                    continue
                group["params"][i] = new
                if old in optimizer.state:
                    state = optimizer.state.pop(old)
                    optimizer.state[new] = {
                        k: divided_like(v, new) if _follows(v, old) else v for k, v in state.items()
                    }
            if group.get("foreach", False) is None and len(by_mesh(group["params"])) > 1:
                group["foreach"] = False
        self._replaced = {k: v for k, v in self._replaced.items() if v[0]() is not None}

    def add_parameters(self, parameters: list[torch.Tensor]) -> None:
        from ..collectives import broadcast_tensors

        # Those that are shards belong to a model, under whatever name its optimizer knew them before.
        parameters = [p for p in parameters if not isinstance(p, DTensor)]
        broadcast_tensors([p.data for p in parameters])
        self._loose.add(parameters)

    # Steps

    def backward(self, loss: torch.Tensor, sync: bool, **kwargs: Any) -> None:
        models = self.models()
        loose = self._loose.snapshot() if sync and self._loose.parameters and self.world_size > 1 else None
        averages = [self.before_backward(model, state) for model, state in models]
        with guard.backward():
            self._run_backward(loss, kwargs)
        if self.world_size > 1:
            for (model, _), averaged in zip(models, averages, strict=True):
                if averaged and model.training:
                    self._share_buffers(model)
            for frozen in (
                [m for r in self._frozen if (m := r()) is not None and m.training] if any(averages) else ()
            ):
                self._share_buffers(frozen)
        if loose is not None and loose != self._loose.snapshot():
            self._loose.average()

    def _run_backward(self, loss: torch.Tensor, kwargs: dict[str, Any]) -> None:
        try:
            loss.backward(**kwargs)  # type: ignore[no-untyped-call]
        except RuntimeError as error:
            if "storage of size 0" not in str(error):
                raise
            raise self.refuse(
                "a gradient of gradients (create_graph=True)",
                "weights were freed by the first of the two backward passes; use plain data parallel",
            ) from error

    def before_backward(self, model: nn.Module, state: Sharding) -> bool:
        """Make the next backward average this model's gradients or not; returns which."""
        return not state.deferred

    def _share_buffers(self, model: nn.Module) -> None:
        """Give every rank rank 0's buffers, such as the statistics of BatchNorm."""
        buffers = [b.data for b in model.buffers() if type(b) is torch.Tensor]
        if buffers:
            share_tensors(buffers, dist.group.WORLD)

    @contextlib.contextmanager
    def no_sync(self, models: Iterable[nn.Module]) -> Iterator[None]:
        found = [s for m in models if (s := sharding_of(m)) is not None]
        for state in found:
            state.deferred += 1
        try:
            yield
        finally:
            for state in found:
                state.deferred -= 1

    def sync_next(self, model: nn.Module) -> None:
        state = sharding_of(model)
        if state is not None:
            state.sync_next = True

    def check_trains_alone(self, operation: str) -> None:
        raise self.refuse(
            operation, "no rank has the whole model; take a larger batch or accumulate gradients instead"
        )

    def join(self, models: list[nn.Module]) -> contextlib.AbstractContextManager[Any]:
        raise self.refuse(
            "join_uneven_inputs",
            "ranks need each other in every forward; even_batches=True gives all as many batches",
        )

    def to_host(self, item: Any) -> Any:
        if any(isinstance(x, DTensor) for x in leaves(item)):
            guard.enter("save of divided tensors")
            return map_leaves(lambda x: whole(x).cpu() if isinstance(x, DTensor) else x, item)
        return item

    # Gradients

    def clip_grad_norm(
        self, parameters: Iterable[torch.Tensor], max_norm: float, norm_type: float, **kwargs: Any
    ) -> torch.Tensor:
        refuse_nonfinite = kwargs.pop("error_if_nonfinite", False)
        kwargs.pop("foreach", None)
        gradients = [p.grad for p in map(self._now, parameters) if p.grad is not None]
        with guard.backward("clip_grad_norm_"):
            total = total_norm(gradients, float(norm_type), self.device)
        if refuse_nonfinite and not torch.isfinite(total):
            raise RuntimeError(f"the norm of the gradients is {total.item()}: they cannot be clipped")
        if max_norm != float("inf"):
            with torch.no_grad():
                torch._foreach_mul_([local(g) for g in gradients], (max_norm / (total + 1e-6)).clamp(max=1.0))
        return total

    @torch.no_grad()
    def clip_grad_value(self, parameters: Iterable[torch.Tensor], clip_value: float) -> None:
        for p in map(self._now, parameters):
            if p.grad is not None:
                local(p.grad).clamp_(-clip_value, clip_value)

    @torch.no_grad()
    def scale_gradients(self, parameters: list[torch.Tensor], factor: float) -> None:
        gradients = [local(p.grad) for p in parameters if p.grad is not None]
        if gradients:
            torch._foreach_mul_(gradients, factor)

    @torch.no_grad()
    def window_gradients(self, parameters: list[torch.Tensor]) -> list[Any]:
        return [None if p.grad is None else local(p.grad).detach().cpu() for p in parameters]

    def restore_window_gradients(self, parameters: list[torch.Tensor], gradients: list[Any]) -> None:
        for p, part in zip(parameters, gradients, strict=True):
            p.grad = None if part is None else from_local_like(part, p)

    # States

    def state_dict(self, model: nn.Module) -> dict[str, Any]:
        return self.unwrap(model).state_dict()

    def load_state_dict(self, model: nn.Module, weights: dict[str, Any], strict: bool = True) -> Any:
        return self.unwrap(model).load_state_dict(weights, strict=strict)

    def optimizer_state_dict(self, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        return self._whole_optimizer(optimizer, keep=True)

    def _whole_optimizer(self, optimizer: torch.optim.Optimizer, keep: bool) -> dict[str, Any]:
        """An optimizer's state, put together value by value; a rank that keeps none has one of them at a time."""
        guard.enter(f"state_dict of {type(optimizer).__name__}")
        state = optimizer.state_dict()

        def put_together(value: Any) -> Any:
            if not isinstance(value, DTensor):
                return value
            found = whole(value)
            return found.cpu() if keep else None

        state["state"] = {
            i: {k: put_together(v) for k, v in values.items()} for i, values in state["state"].items()
        }
        return state

    def load_optimizer_state_dict(self, optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
        parameters = [p for g in optimizer.param_groups for p in g["params"]]
        divided = {
            i: {
                k: divided_like(v, parameters[i]) if _follows(v, parameters[i]) else v
                for k, v in values.items()
            }
            for i, values in state["state"].items()
            if i < len(parameters)
        }
        optimizer.load_state_dict({**state, "state": divided})

    def saved_weights(self, model: nn.Module) -> dict[str, Any]:
        known = sharding_of(model)
        if known is None:
            return super().saved_weights(model)
        known.drops_whole = self.rank != 0
        try:
            found = super().saved_weights(model)
        finally:
            known.drops_whole = False
        return found if self.rank == 0 else {}

    def saved_optimizer(self, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        return self._whole_optimizer(optimizer, keep=self.rank == 0)

    def save_shards(
        self,
        directory: Path,
        models: list[nn.Module],
        optimizers: list[torch.optim.Optimizer],
        asynchronous: bool = False,
    ) -> Callable[[], None] | None:
        from .shards import save

        self.settle()
        return save(directory, [self.unwrap(m) for m in models], optimizers, asynchronous)

    def load_shards(
        self, directory: Path, models: list[nn.Module], optimizers: list[torch.optim.Optimizer]
    ) -> None:
        from .shards import load

        self.settle()
        load(directory, [self.unwrap(m) for m in models], optimizers)


def _follows(value: Any, parameter: torch.Tensor) -> bool:
    """Whether an optimizer's value has one number for each of the parameter's, as a momentum has."""
    return isinstance(value, torch.Tensor) and value.ndim > 0 and value.shape == parameter.shape
