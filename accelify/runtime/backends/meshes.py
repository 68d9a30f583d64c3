"""Meshes of processes, made once for each shape: a group of processes is dear."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

DIMENSIONS = ("dp_replicate", "dp_shard", "tp")

# Shared state: meshes by device type and sizes, and groups of ranks, with the world that they belong to.
_meshes: dict[tuple[Any, ...], tuple[Any, Any]] = {}


def mesh_of(device: torch.device, sizes: tuple[int, int, int]) -> DeviceMesh:
    """The mesh of all processes with (replicas, shards, parts of a layer); dimensions are named DIMENSIONS."""
    if not dist.is_initialized():
        # One process: the engine runs all the same, in a group of one.
        dist.init_process_group(
            "nccl" if device.type == "cuda" else "gloo",
            rank=0,
            world_size=1,
            store=dist.HashStore(),  # type: ignore[attr-defined]
        )
    key = (device.type, *sizes)
    world, mesh = _meshes.get(key, (None, None))
    if mesh is None or world is not dist.group.WORLD:
        mesh = init_device_mesh(device.type, sizes, mesh_dim_names=DIMENSIONS)
        _meshes[key] = (dist.group.WORLD, mesh)
    return mesh  # type: ignore[no-any-return]


def data_group(ranks: int) -> Any:
    """The process group of this rank and those that have its place among `ranks` ranks of one batch."""
    key = ("data", ranks)
    world, group = _meshes.get(key, (None, None))
    if group is None or world is not dist.group.WORLD:
        size = dist.get_world_size()
        # Every rank has to make every group.
        groups = [dist.new_group(list(range(place, size, ranks))) for place in range(ranks)]
        group = groups[dist.get_rank() % ranks]
        _meshes[key] = (dist.group.WORLD, group)
    return group
