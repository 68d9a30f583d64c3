"""FSDP2: every rank keeps a part of each weight, of its gradient and of the optimizer's state (torch's `fully_shard`).

Before a unit of the model runs, its weights are gathered; after it they are freed; in backward gradients are averaged
while they are divided again. On one process it is the same, in a group of one.
"""

from __future__ import annotations

import functools
import os
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.utils.checkpoint import checkpoint

from ..plugins import DistributedDataParallelKwargs
from ..precision import Precision, run_in_precision
from ..state import DistributedType, PartialState
from .dtensors import from_local_like, local
from .fsdp_plugin import FullyShardedDataParallelPlugin
from .materialise import Materialiser
from .meshes import mesh_of
from .parallelism import ParallelismConfig
from .sharded import ShardedBackend
from .sharded_model import Sharding, make_sharded
from .units import find_units, needs_full_precision

# Bytes of weights and optimizer states from which a checkpoint holds each rank's part, by default:
# whole, they would have to fit on the main process, and be written by it alone.
SHARDED_FROM = 4 * 2**30


class FSDPBackend(ShardedBackend):
    """Sharded data parallel over torch's FSDP2, with gloo or NCCL.

    Raises:
        ValueError: sizes that do not fit the number of processes, or offloading where the CPU is the device.
    """

    stated = "FSDP"
    # Gradients of an accumulation window may wait whole on their ranks.
    holds_gradients = True

    def __init__(self, process: PartialState, precision: Precision, options: dict[str, Any]) -> None:
        super().__init__(process, precision, options)
        self.plugin: FullyShardedDataParallelPlugin = options.get("fsdp") or FullyShardedDataParallelPlugin()
        self.parallelism: ParallelismConfig = options.get("parallelism") or ParallelismConfig()
        self.sizes = self.parallelism.sizes(process.num_processes)
        self.mesh = mesh_of(self.device, self.sizes)
        if self.plugin.cpu_offload and self.device.type == "cpu":
            raise ValueError(
                "cpu_offload (fsdp_offload_params) moves weights from a device to the host; this run works on the CPU, "
                "where there is nothing to move: leave it out"
            )
        if self.plugin.cpu_ram_efficient_loading:
            # transformers' from_pretrained asks for these.
            os.environ.update(ACCELERATE_USE_FSDP="true", FSDP_CPU_RAM_EFFICIENT_LOADING="true")
        self._check_reshard()

    def _check_reshard(self) -> None:
        groups, shards = self.plugin.reshard_after_forward, self.sizes[1]
        if isinstance(groups, bool) or groups is None:
            return
        if groups >= shards or shards % groups:
            raise ValueError(
                f"reshard_after_forward={groups} must divide the {shards} ranks of the shards and be smaller; true "
                "reshards to all of them"
            )

    @property
    def distributed_type(self) -> DistributedType:
        return DistributedType.FSDP

    # Wrapping

    def place(self, model: nn.Module) -> nn.Module:
        if any(p.requires_grad for p in model.parameters()):
            # Each unit is moved when it is sharded: a device need not hold the whole model.
            return model
        return super().place(model)

    def wrap(self, model: nn.Module, evaluation: bool = False) -> nn.Module:
        if isinstance(model, FSDPModule):
            raise ValueError(
                f"{type(model).__name__} is sharded already: leave fully_shard out of the script, the engine does it"
            )
        if evaluation or not any(p.requires_grad for p in model.parameters()):
            Materialiser(model, self.plugin.sync_module_states).visit()
            super().place(model)
            run_in_precision(model, self.precision)
            self._frozen = [r for r in self._frozen if r() not in (None, model)] + [weakref.ref(model)]
            return model
        with self._replacing(model):
            self._divide(model)
        self._finish(model)
        return model

    def _divide(self, model: nn.Module) -> None:
        made = Materialiser(model, self.plugin.sync_module_states)
        units = self._units(model)
        made.visit(lambda module: self._shard(module, units, model))

    def _units(self, model: nn.Module) -> dict[int, Any]:
        """Precision policies of the units by identity of the module, the model itself last."""
        plugin = self.plugin
        policy = plugin.precision_policy(self.precision.dtype)
        blocks = find_units(model, plugin)
        if plugin.activation_checkpointing:
            if not blocks and plugin.auto_wrap_policy == "no_wrap":
                raise ValueError(
                    "activation_checkpointing computes blocks again, and auto_wrap_policy NO_WRAP says that there are "
                    "none: choose TRANSFORMER_BASED_WRAP (fsdp_auto_wrap_policy), or leave one of the two out"
                )
            if not blocks:
                raise ValueError(
                    f"activation_checkpointing: no repeated blocks were found in {type(model).__name__}; name their "
                    "class in transformer_cls_names_to_wrap (fsdp_transformer_layer_cls_to_wrap)"
                )
            for block in blocks:
                block.forward = functools.partial(_again_in_backward, block.forward)
        units = {id(block): policy for block in blocks}
        if policy.param_dtype not in (None, torch.float32):
            for module in model.modules():
                if needs_full_precision(module, self.device) and any(True for _ in module.parameters()):
                    units[id(module)] = MixedPrecisionPolicy()
        units[id(model)] = policy
        return units

    def _shard(self, module: nn.Module, units: dict[int, Any], model: nn.Module) -> None:
        if id(module) not in units:
            return
        arguments: dict[str, Any] = {"mesh": self._data_mesh(), "mp_policy": units[id(module)]}
        reshard = self.plugin.reshard_after_forward
        # What is freed last in forward is gathered first in backward: torch keeps the outermost unit.
        if reshard is not None and not (reshard is True and module is model):
            arguments["reshard_after_forward"] = reshard
        if self.plugin.cpu_offload:
            arguments["offload_policy"] = self._offloading()
        fully_shard(module, **arguments)

    def _offloading(self) -> Any:
        from torch.distributed.fsdp import CPUOffloadPolicy

        stated = self.plugin.cpu_offload
        return stated if isinstance(stated, CPUOffloadPolicy) else CPUOffloadPolicy()

    def _data_mesh(self) -> Any:
        return self.mesh["dp_replicate", "dp_shard"] if self.sizes[0] > 1 else self.mesh["dp_shard"]

    def _finish(self, model: nn.Module) -> None:
        """Make a divided model fit for scripts."""
        make_sharded(model, self.precision)
        run_in_precision(model, self.precision)
        self._models.append(weakref.ref(model))
        handler = self.options.get("ddp")
        if isinstance(handler, DistributedDataParallelKwargs) and handler.find_unused_parameters:
            setter = getattr(model, "set_reduce_scatter_unused_params", None)
            if setter is None:
                raise self.refuse("find_unused_parameters", "it needs torch 2.13")
            setter(True)

    def compile_whole(self, model: nn.Module, arguments: dict[str, Any]) -> nn.Module:
        # In place: references outside of the model's forward stay as they are.
        model.compile(**arguments)
        return model

    def saves_shards(
        self, models: list[nn.Module], optimizers: list[torch.optim.Optimizer], shared: bool
    ) -> bool:
        kind = self.plugin.state_dict_type
        if kind is not None:
            return kind == "SHARDED_STATE_DICT"
        if not shared or self.world_size == 1:
            return False
        tensors = [p for model in models for p in model.parameters()]
        tensors += [v for o in optimizers for values in o.state.values() for v in values.values()]
        size = sum(t.numel() * t.element_size() for t in tensors if isinstance(t, torch.Tensor))
        return size > SHARDED_FROM

    # Steps

    def settle(self) -> None:
        for model, _ in self.models():
            if not isinstance(model, FSDPModule):
                continue
            shown = dict(model.named_parameters(remove_duplicate=False))
            for module in model.modules():
                if isinstance(module, FSDPModule):
                    module.reshard()
            for name, parameter in model.named_parameters(remove_duplicate=False):
                if shown[name] is not parameter:
                    self._replaced[id(shown[name])] = (weakref.ref(shown[name]), parameter)

    def before_backward(self, model: nn.Module, state: Sharding) -> bool:
        averages = state.sync_next or not (state.deferred and self.holds_gradients)
        state.sync_next = False
        if averages != state.syncs and isinstance(model, FSDPModule):
            state.syncs = averages
            model.set_requires_gradient_sync(averages)
        return averages

    def zero_grad(self, optimizer: torch.optim.Optimizer, set_to_none: bool) -> None:
        super().zero_grad(optimizer, set_to_none)
        if any(not state.syncs for _, state in self.models()):
            own = {id(p) for g in optimizer.param_groups for p in g["params"]}
            for part in self._parts():
                if id(part.sharded_param) in own:
                    _set_deferred(part, None)

    # Gradients that wait whole on their ranks, within a window. torch has no public way to them.

    def _parts(self) -> Iterator[Any]:
        for model, _ in self.models():
            for module in model.modules():
                if isinstance(module, FSDPModule):
                    state = module._get_fsdp_state()
                    groups = getattr(state, "_fsdp_param_groups", None)
                    if groups is None:
                        groups = [state._fsdp_param_group] if state._fsdp_param_group is not None else []
                    for group in groups:
                        yield from group.fsdp_params

    @torch.no_grad()
    def scale_gradients(self, parameters: list[torch.Tensor], factor: float) -> None:
        super().scale_gradients(parameters, factor)
        own = {id(p) for p in parameters}
        for part in self._parts():
            gradient = _deferred(part)
            if gradient is not None and id(part.sharded_param) in own:
                local(gradient).mul_(factor)

    @torch.no_grad()
    def window_gradients(self, parameters: list[torch.Tensor]) -> list[Any]:
        deferred = {id(part.sharded_param): _deferred(part) for part in self._parts()}
        found = []
        for p, part in zip(parameters, super().window_gradients(parameters), strict=True):
            waiting = deferred.get(id(p))
            found.append({"part": part, "held": None if waiting is None else local(waiting).detach().cpu()})
        return found

    def restore_window_gradients(self, parameters: list[torch.Tensor], gradients: list[Any]) -> None:
        saved = {id(p): state["held"] for p, state in zip(parameters, gradients, strict=True)}
        for p, state in zip(parameters, gradients, strict=True):
            p.grad = None if state["part"] is None else from_local_like(state["part"], p)
        for part in self._parts():
            waiting = saved.get(id(part.sharded_param))
            _set_deferred(part, None if waiting is None else waiting.to(self.device))


def _deferred(part: Any) -> torch.Tensor | None:
    if part.unsharded_accumulated_grad is not None:
        return part.unsharded_accumulated_grad  # type: ignore[no-any-return]
    gathered = getattr(part, "_unsharded_param", None)
    return None if gathered is None else gathered.grad


def _set_deferred(part: Any, gradient: torch.Tensor | None) -> None:
    part.unsharded_accumulated_grad = gradient
    gathered = getattr(part, "_unsharded_param", None)
    if gathered is not None:
        gathered.grad = None


def _again_in_backward(forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Run a unit without keeping its activations."""
    if not torch.is_grad_enabled():
        return forward(*args, **kwargs)
    return checkpoint(forward, *args, use_reentrant=False, **kwargs)
