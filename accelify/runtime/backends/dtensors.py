"""Whole and divided tensors: what the sharding engines know of torch's DTensor."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor, Partial, Replicate, distribute_tensor


def whole(tensor: torch.Tensor) -> torch.Tensor:
    """A divided tensor put together, on every rank of its mesh; another as it is."""
    if not isinstance(tensor, DTensor):
        return tensor
    # torch warns every time that a weight divided twice is put together in two steps.
    talk = logging.getLogger("torch.distributed.tensor._redistribute")
    level = talk.level
    talk.setLevel(logging.ERROR)
    try:
        return tensor.full_tensor()
    finally:
        talk.setLevel(level)


@torch.no_grad()
def total_norm(tensors: Iterable[torch.Tensor], order: float, device: torch.device) -> torch.Tensor:
    """The norm of all tensors together, divided ones counted whole; the same plain tensor on every rank.

    Args:
        tensors: any mixture of whole and divided ones.
        order: of the norm, infinity included.
        device: of the result.
    """
    groups: dict[Any, list[torch.Tensor]] = {}
    for tensor in tensors:
        key: Any = None
        if isinstance(tensor, DTensor):
            if any(isinstance(p, Partial) for p in tensor.placements):
                whole_places = [Replicate() if isinstance(p, Partial) else p for p in tensor.placements]
                tensor = tensor.redistribute(placements=whole_places)
            key = tensor.device_mesh, tensor.placements
        groups.setdefault(key, []).append(local(tensor))
    norms = []
    for key, parts in groups.items():
        # A rank whose shard is empty has no largest element: nothing there counts as zero.
        parts = [part for part in parts if part.numel()] or [torch.zeros(1, device=parts[0].device)]
        norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(parts, order)).to(device), order)
        if key is not None:
            mesh, placements = key
            largest = order == float("inf")
            power = norm if largest else norm**order
            for dimension, placement in enumerate(placements):
                if not placement.is_replicate():
                    kind = dist.ReduceOp.MAX if largest else dist.ReduceOp.SUM
                    dist.all_reduce(power, kind, group=mesh.get_group(dimension))
            norm = power if largest else power ** (1 / order)
        norms.append(norm)
    return torch.linalg.vector_norm(torch.stack(norms), order) if norms else torch.zeros((), device=device)


def local(tensor: torch.Tensor) -> torch.Tensor:
    """This rank's part of a divided tensor, sharing its memory; another as it is."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def divided_like(tensor: torch.Tensor, example: torch.Tensor) -> torch.Tensor:
    """A whole tensor, the same on every rank, divided as `example` is; where that is whole, moved to its device."""
    if not isinstance(example, DTensor) or isinstance(tensor, DTensor):
        return tensor.to(example.device)
    # Every rank cuts its part: nothing is sent.
    return distribute_tensor(
        tensor.detach().to(local(example).device), example.device_mesh, example.placements, src_data_rank=None
    )


def from_local_like(part: torch.Tensor, example: torch.Tensor) -> torch.Tensor:
    """A rank's part as a tensor divided as `example` is."""
    if not isinstance(example, DTensor):
        return part.to(example.device)
    return DTensor.from_local(
        part.to(local(example).device),
        example.device_mesh,
        example.placements,
        run_check=False,
        shape=example.shape,
        stride=example.stride(),
    )


def by_mesh(tensors: Iterable[torch.Tensor]) -> list[list[torch.Tensor]]:
    """Tensors in groups of one mesh each; torch's functions on lists do not take several."""
    groups: dict[Any, list[torch.Tensor]] = {}
    for tensor in tensors:
        groups.setdefault(tensor.device_mesh if isinstance(tensor, DTensor) else None, []).append(tensor)
    return list(groups.values())
