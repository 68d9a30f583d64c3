"""XLA devices, TPUs above all, through torch_xla: one device, several by SPMD, or one replica in each process.

Operations are noted, not run; what was noted runs when it is cut off: after an optimizer's step, before the next batch
of a prepared loader, and where the script reads a value. What is cut off alike is compiled once.
"""

from __future__ import annotations

import contextlib
import functools
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch.nn.modules.batchnorm import _BatchNorm

from .. import guard
from ..nested import find_batch_size, leaves, map_leaves, recursively_apply
from ..precision import Precision, run_in_precision
from ..state import DistributedType, GradientState, PartialState
from . import xla_device
from .base import Backend
from .xla_feed import Feed, Padding, may_feed_ahead
from .xla_plugin import XLAPlugin

if TYPE_CHECKING:
    from ..data.loaders import DataLoaderShard

_COMPILERS = ("no", "openxla", "eager", "aot_eager")
# Steps between two looks at the number of compilations, and how many of them are too many.
_LOOK_EVERY = 100
_TOO_MANY = 20


class XLABackend(Backend):
    """The engine for XLA devices.

    Raises:
        ValueError: fp16, a compiler that is not XLA's, or one under SPMD.
    """

    def __init__(self, process: PartialState, precision: Precision, options: dict[str, Any]) -> None:
        super().__init__(process, precision, options)
        if precision.scaler is not None:
            raise ValueError('XLA devices train in bf16, which needs no loss scaling: mixed_precision="bf16"')
        compiler = getattr(options.get("dynamo"), "backend", "no")
        if compiler not in _COMPILERS:
            raise ValueError(
                f'XLA devices compile by themselves: leave dynamo_backend out or use "openxla", not {compiler!r}'
            )
        self.plugin: XLAPlugin = options.get("xla") or XLAPlugin()
        self.padding = Padding(self.plugin)
        self.mesh = self._make_mesh()
        if self.mesh is not None and compiler != "no":
            # Measured with torch_xla 2.9: from the third step on such a run has other losses.
            raise ValueError(
                f"dynamo_backend={compiler!r} and SPMD do not go together, torch_xla then computes other gradients: "
                "leave dynamo_backend out, XLA compiles all the same; or use one device with XLAPlugin(spmd=False)"
            )
        # Whether the last batch's operations have been cut off already.
        self._settled = True
        self._steps = 0
        self._compiled = 0
        self._seeded: int | None = None
        # Parameters that moving had to replace: by the identity of the old one, which is referenced for that.
        self._moved: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._models: list[weakref.ref[torch.nn.Module]] = []
        self._loose: list[torch.Tensor] = []
        self._contained: list[int] = []
        self._sync_next: set[int] = set()

    @property
    def distributed_type(self) -> DistributedType:
        return DistributedType.XLA

    def _make_mesh(self) -> Any:
        import torch_xla.runtime as xr

        if not xr.is_spmd():
            if self.plugin.spmd or self.plugin.shard_weights:
                raise ValueError(
                    "XLAPlugin asks for SPMD, and this process already works without: make the Accelerator before any "
                    "PartialState, and without another process"
                )
            return None
        import numpy as np
        import torch_xla.distributed.spmd as spmd

        devices = int(xr.global_runtime_device_count())
        return spmd.Mesh(np.arange(devices), (devices,), ("data",))

    # When what was noted runs

    def sync(self) -> None:
        """Cut off here: what was noted so far runs, while the script goes on."""
        import torch_xla

        torch_xla.sync()
        self._settled = True
        self._steps += 1
        if self._steps % _LOOK_EVERY == 0:
            self._look_at_compilations()

    def settle(self) -> None:
        """Cut off what a batch left, unless a step did."""
        if not self._settled:
            self.sync()

    def _begin_batch(self) -> None:
        self.settle()
        self._settled = False

    def _look_at_compilations(self) -> None:
        compiled = compilations()
        new, self._compiled = compiled - self._compiled, compiled
        if new >= _TOO_MANY and self._steps > _LOOK_EVERY:
            warnings.warn(
                f"XLA compiled {new} programs in the last {_LOOK_EVERY} steps, in place of running those it has: "
                "shapes change from batch to batch, or values are read (.item(), print, if) in other places each time; "
                "see XLAPlugin(pad_to_fixed_shape=True, pad_lengths=[...])",
                stacklevel=2,
            )

    # Models

    def place(self, model: torch.nn.Module) -> torch.nn.Module:
        """Move a model. Its parameters stay the objects they are where that can be, so ties and optimizers hold."""
        known: dict[int, torch.Tensor] = {}
        for module in model.modules():
            for name, parameter in module._parameters.items():
                if parameter is not None:
                    module._parameters[name] = self._move_parameter(parameter, known)  # type: ignore[assignment]
            for name, buffer in module._buffers.items():
                if buffer is not None:
                    if id(buffer) not in known:
                        known[id(buffer)] = buffer.to(self.device)
                    module._buffers[name] = known[id(buffer)]
        return model

    def _move_parameter(self, parameter: torch.Tensor, known: dict[int, torch.Tensor]) -> torch.Tensor:
        if id(parameter) in known:
            return known[id(parameter)]
        if torch.nn.parameter.is_lazy(parameter):
            raise ValueError(
                "a lazy module has no weights yet: run one batch through the model before prepare moves it"
            )
        known[id(parameter)] = parameter
        if parameter.device.type == "xla":
            return parameter
        new = torch.nn.Parameter(parameter.detach().to(self.device), parameter.requires_grad)
        if parameter.grad is not None:
            new.grad, parameter.grad = parameter.grad.to(self.device), None
        new.__dict__.update(parameter.__dict__)
        for hook in (parameter._backward_hooks or {}).values():
            new.register_hook(hook)  # type: ignore[no-untyped-call]
        for hook in (getattr(parameter, "_post_accumulate_grad_hooks", None) or {}).values():
            new.register_post_accumulate_grad_hook(hook)  # type: ignore[no-untyped-call]
        try:
            torch.utils.swap_tensors(parameter, new)  # type: ignore[no-untyped-call]
        except RuntimeError:
            # Something else holds on to the old one, such as the graph of an earlier forward: a new object then.
            self._moved[id(parameter)] = (parameter, new)
            known[id(parameter)] = known[id(new)] = new
        return known[id(parameter)]

    def wrap(self, model: torch.nn.Module, evaluation: bool = False) -> torch.nn.Module:
        trained = not evaluation and any(p.requires_grad for p in model.parameters())
        if trained and self.plugin.pad_to_fixed_shape:
            _refuse_statistics(model)
        if self.world_size > 1:
            from ..collectives import broadcast_tensors

            broadcast_tensors([t.data for t in (*model.parameters(), *model.buffers())])
        self._lay_out(model)
        self._follow_seed()
        run_in_precision(model, self.precision)
        if trained:
            self._models.append(weakref.ref(model))
        # Else the first step's program would hold all that was done to the weights before.
        self.sync()
        return model

    def _lay_out(self, model: torch.nn.Module) -> None:
        """With SPMD, set where weights are: whole on every device, or in pieces."""
        if self.mesh is None:
            return
        for parameter in {id(p): p for p in model.parameters()}.values():
            self._mark(parameter, self._weight_axes(parameter))
        for buffer in model.buffers():
            self._mark(buffer, (None,) * buffer.ndim)

    def _weight_axes(self, weight: torch.Tensor) -> tuple[str | None, ...]:
        axes: list[str | None] = [None] * weight.ndim
        devices = self.mesh.size()
        if self.plugin.shard_weights and weight.ndim:
            longest = max(range(weight.ndim), key=lambda d: weight.shape[d])
            if weight.shape[longest] % devices == 0:
                axes[longest] = "data"
        return tuple(axes)

    def _mark(self, tensor: torch.Tensor, axes: tuple[str | None, ...]) -> None:
        if xla_device.on_device(tensor):
            import torch_xla
            import torch_xla.distributed.spmd as spmd

            # A mark that differs from the one that is there is an error: it goes first.
            torch_xla._XLAC._xla_clear_sharding(tensor)
            spmd.mark_sharding(tensor, self.mesh, axes)

    def _follow_seed(self) -> None:
        """The device draws from a separate generator, which starts where the script seeded torch's."""
        wanted = torch.initial_seed()
        if wanted != self._seeded:
            self._seeded = wanted
            xla_device.seed(wanted + self.rank)

    def models(self) -> list[torch.nn.Module]:
        """The trained models still in use."""
        found = [(r, m) for r in self._models if (m := r()) is not None]
        self._models = [r for r, _ in found]
        return [m for _, m in found]

    # Optimizers

    def adopt(self, optimizer: torch.optim.Optimizer) -> None:
        for group in optimizer.param_groups:
            if group.get("fused"):
                # torch's fused kernels are for other devices; the unfused step computes the same.
                group["fused"] = False
            group["params"] = [self._moved[id(p)][1] if id(p) in self._moved else p for p in group["params"]]
        for old, new in self._moved.values():
            if old in optimizer.state:
                optimizer.state[new] = optimizer.state.pop(old)
        for parameter, state in optimizer.state.items():
            if xla_device.on_device(parameter):
                for name, value in state.items():
                    if isinstance(value, torch.Tensor) and value.ndim and value.device.type == "cpu":
                        state[name] = value.to(self.device)

    def step(self, optimizer: torch.optim.Optimizer, closure: Callable[[], Any] | None = None) -> Any:
        result = super().step(optimizer, closure)
        self.sync()
        return result

    def state_dict(self, model: torch.nn.Module) -> dict[str, Any]:
        self.settle()
        return self.to_host(super().state_dict(model))  # type: ignore[no-any-return]

    def load_state_dict(self, model: torch.nn.Module, weights: dict[str, Any], strict: bool = True) -> Any:
        result = super().load_state_dict(model, weights, strict)
        self._lay_out(self.unwrap(model))
        self.sync()
        return result

    def optimizer_state_dict(self, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        self.settle()
        return self.to_host(super().optimizer_state_dict(optimizer))  # type: ignore[no-any-return]

    def load_optimizer_state_dict(self, optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
        super().load_optimizer_state_dict(optimizer, state)
        for parameter, values in optimizer.state.items() if self.mesh is not None else ():
            for value in values.values():
                if isinstance(value, torch.Tensor) and value.shape == parameter.shape:
                    self._mark(value, self._weight_axes(parameter))
        self.sync()

    def to_host(self, item: Any) -> Any:
        return xla_device.to_host(item)

    # Batches

    def adopt_loader(self, loader: Any) -> None:
        loader.feed = self.feed

    def feed(self, source: Iterator[Any], loader: DataLoaderShard) -> Feed:
        """The batches of a pass, padded where that is asked for, on the device and laid out over it."""
        ahead = self.plugin.prefetch_batches if loader.device is not None and may_feed_ahead(loader) else 0

        def place(item: Any) -> tuple[Any, int]:
            if loader._carries_shares:
                batch, added = self._padded(item[0], loader)
                return (self.place_batch(batch, loader), item[1]), added
            batch, added = self._padded(item, loader)
            return self.place_batch(batch, loader), added

        return Feed(source, place, self._begin_batch, ahead)

    def _padded(self, batch: Any, loader: DataLoaderShard) -> tuple[Any, int]:
        return self.padding.pad(batch, loader) if self.padding.wanted else (batch, 0)

    def place_batch(self, batch: Any, loader: Any) -> Any:
        if loader.device is None:
            return batch
        import torch_xla

        found: list[Any] = []
        recursively_apply(found.append, batch, test_type=_is_placed_whole)
        tensors = [t for t in found if isinstance(t, torch.Tensor) and t.device.type == "cpu"]
        rows = find_batch_size(batch)
        layouts = None if self.mesh is None else [self._layout(t, rows) for t in tensors]
        devices = [str(self.device)] * len(tensors)
        # Straight to the devices and not noted: a thread may do this while the loop notes a step.
        placed = iter(torch_xla._XLAC._xla_tensors_from_aten(tensors, devices, layouts) if tensors else ())

        def one(item: Any) -> Any:
            in_bulk = isinstance(item, torch.Tensor) and item.device.type == "cpu"
            return next(placed) if in_bulk else item.to(self.device)

        return recursively_apply(one, batch, test_type=_is_placed_whole)

    def _layout(self, tensor: torch.Tensor, rows: int | None) -> Any:
        """Samples are spread over the devices; what has fewer than one for each, and all else, is whole on each."""
        import torch_xla.distributed.spmd as spmd

        axes: list[str | None] = [None] * tensor.ndim
        if tensor.ndim and tensor.shape[0] == rows and rows >= self.mesh.size():
            axes[0] = "data"
        return spmd.ShardingSpec(self.mesh, tuple(axes)).xla_spec(tensor)

    def drop_padding(self, data: Any) -> Any:
        iterator = GradientState().loaders.of_outputs()
        feed = getattr(iterator, "_base", None)
        if iterator is None or not isinstance(feed, Feed):
            return data
        added = feed.added_to(iterator.position - iterator.first)
        size = next((len(x) for x in leaves(data) if isinstance(x, torch.Tensor) and x.ndim), None)
        if not added:
            return data
        if size is None:
            return data[:-added] if isinstance(data, (list, tuple)) else data
        return map_leaves(
            lambda x: x[:-added] if isinstance(x, torch.Tensor) and x.ndim and len(x) == size else x, data
        )

    # Replicas: one process a device

    def backward(self, loss: torch.Tensor, sync: bool, **kwargs: Any) -> None:
        super().backward(loss, sync, **kwargs)
        if self.world_size > 1:
            self._average(sync)
        if not sync:
            # No step will cut this batch off; a loss that is read after it would be computed again.
            self.sync()

    def _average(self, sync: bool) -> None:
        models = [
            m for m in self.models() if id(m) in self._sync_next or (sync and id(m) not in self._contained)
        ]
        self._sync_next.clear()
        loose = self._loose if sync and not self._contained else []
        parameters = [p for m in models for p in m.parameters()] + loose
        own = {id(p): p for p in parameters if p.grad is not None}
        if own:
            average([p.grad for p in own.values() if p.grad is not None], self.world_size)
        buffers = [b for m in models for b in m.buffers()]
        if buffers:
            share(buffers, self.world_size)

    @contextlib.contextmanager
    def no_sync(self, models: Iterable[torch.nn.Module]) -> Iterator[None]:
        before = list(self._contained)
        self._contained += [id(getattr(m, "_orig_mod", m)) for m in models]
        try:
            yield
        finally:
            self._contained[:] = before

    def sync_next(self, model: torch.nn.Module) -> None:
        self._sync_next.add(id(getattr(model, "_orig_mod", model)))

    def add_parameters(self, parameters: list[torch.Tensor]) -> None:
        from ..collectives import broadcast_tensors

        broadcast_tensors([p.data for p in parameters])
        known = {id(p) for p in self._loose}
        self._loose += [p for p in parameters if id(p) not in known]

    def shared_closure(self, closure: Callable[[], Any]) -> Callable[[], Any]:
        @functools.wraps(closure)
        def shared() -> Any:
            from ..collectives import reduce

            loss = closure()
            if not isinstance(loss, torch.Tensor) or self.world_size == 1:
                return loss
            return reduce(loss.detach() * self.last_scale, "mean")

        return shared

    def join(self, models: list[torch.nn.Module]) -> contextlib.AbstractContextManager[Any]:
        if self.world_size > 1:
            raise ValueError(
                "join_uneven_inputs is not for XLA replicas, which all run the same program: even_batches=True gives "
                "every rank the same number of batches"
            )
        return super().join(models)


def compilations() -> int:
    """How many programs XLA has compiled in this process."""
    import torch_xla.debug.metrics as metrics

    data = metrics.metric_data("CompileTime")
    return int(data[0]) if data else 0


def average(gradients: list[torch.Tensor], ranks: int) -> None:
    """Replace gradients by their mean over all replicas.

    On the devices where XLA's runtime connects them; processes that it does not connect (torchrun with
    PJRT_DEVICE=CPU) talk over their process group. A replica must have the gradients that the others have.

    Args:
        gradients: on this replica's device, in the same order on each.
        ranks: how many replicas there are.
    """
    if _connected(ranks):
        import torch_xla.core.xla_model as xm

        xm.all_reduce(xm.REDUCE_SUM, gradients, scale=1.0 / ranks)
        return
    hosts = xla_device.fetch(gradients)
    wide = functools.reduce(torch.promote_types, (h.dtype for h in hosts), torch.float32)
    flat = torch.cat([h.reshape(-1).to(wide) for h in hosts])
    with guard.collective("average of gradients", flat):
        dist.all_reduce(flat)
    parts = torch.split(flat.div_(ranks), [h.numel() for h in hosts])
    for gradient, part in zip(gradients, parts, strict=True):
        gradient.copy_(part.view(gradient.shape).to(gradient.dtype))


def share(buffers: list[torch.Tensor], ranks: int) -> None:
    """Give every replica rank 0's buffers, such as batch statistics."""
    if _connected(ranks):
        import torch_xla.core.xla_model as xm

        xm.collective_broadcast(buffers)
        return
    from ..collectives import broadcast_tensors

    broadcast_tensors([b.data for b in buffers])


def _connected(ranks: int) -> bool:
    import torch_xla.runtime as xr

    return int(xr.world_size()) == ranks


def _is_placed_whole(item: Any) -> bool:
    """A tensor, or a batch object with a `to` method, such as packed sequences."""
    if isinstance(item, (torch.nn.Module, type, Mapping)):
        return False
    return isinstance(item, torch.Tensor) or callable(getattr(item, "to", None))


def _refuse_statistics(model: torch.nn.Module) -> None:
    for name, module in model.named_modules():
        if isinstance(module, _BatchNorm):
            raise ValueError(
                f"pad_to_fixed_shape would let the samples it adds into the batch statistics of {name or 'the model'} "
                f"({type(module).__name__}): use drop_last=True instead"
            )
