"""Tensor parallel: layers divided between ranks that work on the same batches, by a plan, over DTensor.

Alone, or with what is left of the processes as FSDP2's: then each part of a layer is sharded further.
"""

from __future__ import annotations

import fnmatch
import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    PrepareModuleOutput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

from ..precision import Precision
from ..sections import near
from ..state import DistributedType, PartialState
from .fsdp import FSDPBackend
from .materialise import Materialiser
from .meshes import data_group
from .sharded_model import Sharding

# Words of plans, torch's and those of transformers' models.
_STYLES: dict[str, Any] = {
    "colwise": ColwiseParallel,
    "colwiseparallel": ColwiseParallel,
    "rowwise": RowwiseParallel,
    "rowwiseparallel": RowwiseParallel,
    "sequence_parallel": SequenceParallel,
    "sequenceparallel": SequenceParallel,
    "colwise_rep": lambda: ColwiseParallel(output_layouts=Replicate()),
    "colwise_gather_output": lambda: ColwiseParallel(output_layouts=Replicate()),
    "rowwise_rep": lambda: RowwiseParallel(input_layouts=Replicate()),
    "rowwise_split_input": lambda: RowwiseParallel(input_layouts=Replicate()),
}


class TensorParallelBackend(FSDPBackend):
    """Layers divided by a plan, and the rest by FSDP2 where there are more ranks than `tp_size`."""

    stated = "tensor parallel"
    # Gradients of layers that are divided twice are averaged in every backward.
    holds_gradients = False

    def __init__(self, process: PartialState, precision: Precision, options: dict[str, Any]) -> None:
        super().__init__(process, precision, options)
        process.share_batches(self.sizes[2], data_group(self.sizes[2]))
        self.shards = "fsdp" in options or self.sizes[0] * self.sizes[1] > 1

    @property
    def distributed_type(self) -> DistributedType:
        return DistributedType.FSDP if self.shards else DistributedType.TP

    def place(self, model: nn.Module) -> nn.Module:
        return super().place(model) if self.shards else model

    def _divide(self, model: nn.Module) -> None:
        Materialiser(model, self.plugin.sync_module_states).visit()
        if not self.shards:
            model.to(self.device)
        parallelize(model, self.mesh["tp"], self._plan(model))
        if self.shards:
            units = self._units(model)
            for module in _children_first(model):
                self._shard(module, units, model)

    def _plan(self, model: nn.Module) -> Mapping[str, Any]:
        plan = self.parallelism.tp_plan
        if plan is None:
            plan = getattr(model, "tp_plan", None) or getattr(model, "_tp_plan", None)
        if not plan:
            raise ValueError(
                f"tensor parallel needs a plan for {type(model).__name__}: ParallelismConfig(tp_plan={{...}}), or an "
                "attribute tp_plan of the model, from names of modules to colwise or rowwise"
            )
        return plan

    def before_backward(self, model: nn.Module, state: Sharding) -> bool:
        if self.shards:
            return super().before_backward(model, state)
        return True

    def backward(self, loss: torch.Tensor, sync: bool, **kwargs: Any) -> None:
        super().backward(loss, sync, **kwargs)
        if not self.shards:
            for model, _ in self.models():
                for p in model.parameters():
                    # Of layers whose inputs are divided along the sequence each rank has one summand.
                    if isinstance(p.grad, DTensor) and p.grad.placements != p.placements:  # type: ignore[attr-defined]
                        p.grad = p.grad.redistribute(placements=p.placements)  # type: ignore[attr-defined]


def parallelize(model: nn.Module, mesh: Any, plan: Mapping[str, Any]) -> None:
    """Divide a model's layers.

    Args:
        model: on its device.
        mesh: one dimension, the ranks that share a layer.
        plan: see `ParallelismConfig`.

    Raises:
        ValueError: a pattern that fits no module, an unknown style, or a layer whose size the ranks do not divide.
    """
    names = [name for name, _ in model.named_modules() if name]
    chosen: dict[str, ParallelStyle] = {}
    for pattern, stated in plan.items():
        found = [name for name in names if _fits(name, pattern)]
        if not found:
            raise ValueError(
                f"tp_plan: no module of {type(model).__name__} is called {pattern!r}: {near(pattern, names)}"
            )
        for name in found:
            chosen[name] = _style(stated, pattern)
            _check_size(model.get_submodule(name), name, chosen[name], mesh.size())
    for name, style in chosen.items():
        parallelize_module(model.get_submodule(name), mesh, style)


def _fits(name: str, pattern: str) -> bool:
    parts, wanted = name.split("."), pattern.split(".")
    return len(parts) == len(wanted) and all(
        fnmatch.fnmatchcase(a, b) for a, b in zip(parts, wanted, strict=True)
    )


def _style(stated: Any, pattern: str) -> ParallelStyle:
    if isinstance(stated, ParallelStyle):
        return stated
    if inspect.isclass(stated) and issubclass(stated, ParallelStyle):
        return stated()
    make = _STYLES.get(str(stated).lower())
    if make is None:
        raise ValueError(f"tp_plan[{pattern!r}] cannot be {stated!r}: {near(str(stated), _STYLES)}")
    return make()  # type: ignore[no-any-return]


def _check_size(module: nn.Module, name: str, style: ParallelStyle, ranks: int) -> None:
    """torch divides unevenly, and then the layers do not fit each other."""
    if isinstance(style, (SequenceParallel, PrepareModuleInput, PrepareModuleOutput)):
        return
    weight = getattr(module, "weight", None)
    if not isinstance(weight, torch.Tensor):
        raise ValueError(
            f"tp_plan: {name} is a {type(module).__name__}; {type(style).__name__} divides layers with a weight, "
            "Linear and Embedding"
        )
    column = isinstance(style, ColwiseParallel)
    dimension = int(column) if isinstance(module, nn.Embedding) else int(not column)
    if weight.shape[dimension] % ranks:
        raise ValueError(
            f"tp_plan: the {weight.shape[dimension]} {'outputs' if column else 'inputs'} of {name} cannot be divided "
            f"between {ranks} ranks; choose a tp_size that divides them"
        )


def _children_first(module: nn.Module) -> list[nn.Module]:
    found: dict[int, nn.Module] = {}

    def walk(m: nn.Module) -> None:
        for child in m.children():
            walk(child)
        found.setdefault(id(m), m)

    walk(module)
    return list(found.values())
